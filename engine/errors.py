"""Every exception the engine raises on purpose.

EngineError
├── ConfigError               an option or an argument is unusable (the command line exits with 2)
├── CheckpointError           a checkpoint cannot be read
│   └── UnsupportedArchitectureError   it can, but no decoder here implements it
├── RequestRejectedError           one request can never run; the others are not concerned
├── OutOfBlocksError               the KV pool has no free block left
└── StepError                 a step failed on the device; its requests are rolled back and retried
"""


class EngineError(Exception):
    """Root of all exceptions of the engine; its text is one line for the person who called."""

    exit_code = 2


class ConfigError(EngineError):
    """An option is unknown, out of range, or does not fit another one."""


class CheckpointError(EngineError):
    """A checkpoint folder is missing, incomplete or damaged."""


class UnsupportedArchitectureError(CheckpointError):
    """The checkpoint names an architecture that no decoder here implements."""


class RequestRejectedError(EngineError):
    """A request can never run with this configuration (longer than the model or the KV pool)."""


class OutOfBlocksError(EngineError):
    """More KV blocks were asked for than are free."""


class StepError(EngineError):
    """A step failed while it ran on the device; no token of it was kept."""
