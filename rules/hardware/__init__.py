"""What the machine itself does: heat, power, clocks, links, memory errors, sharing, CPUs."""
