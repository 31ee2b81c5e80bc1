"""What `hourhand up` costs while nothing is to be done: the same as `hourhand bench idle`.

python benchmarks/idle.py --seconds 60 --windows 3
"""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "hourhand.cli", "bench", "idle", *sys.argv[1:]])
