"""`python -m doctor`."""

import sys

from doctor.cli.main import main

sys.exit(main())
