"""``python -m cli`` is ``poolctl``."""

import sys

from cli.frame.app import main

sys.exit(main())
