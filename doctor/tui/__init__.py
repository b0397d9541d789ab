"""The diagnosis as a terminal application: screens that ask the case for what they show, in workers."""
