"""``python -m cli`` is ``poolctl``; as a child of another one it ends with its parent."""

import sys

from cli.frame.app import main
from site_agent.work.processes import end_with_parent

end_with_parent()
sys.exit(main())
