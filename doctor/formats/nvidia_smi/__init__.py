"""What `nvidia-smi` prints, in all its forms: quantities with units, names of fields, states of devices."""
