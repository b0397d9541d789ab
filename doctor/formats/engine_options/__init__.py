"""The settings of inference engines: which are kept, and one word for what each of them sets in all engines.

Hosts, paths, keys, names of models and everything else that is not listed in `names` is dropped where it is read.
"""

from doctor.formats.engine_options.command import Command, command_of
from doctor.formats.engine_options.names import ENGINES, Setting, is_undecided, setting_of, settings_of
from doctor.formats.engine_options.pairs import pairs

__all__ = ["ENGINES", "Command", "Setting", "command_of", "is_undecided", "pairs", "setting_of", "settings_of"]
