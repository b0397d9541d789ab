"""Settings tried one after another: run, diagnose, apply what the diagnosis suggests, run again, keep what won."""
