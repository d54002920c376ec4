"""The number of seeds that the crash tests run: `make crash-proof` sets `CRASH_PROOF_SEEDS`."""

import os

SEEDS = int(os.environ.get("CRASH_PROOF_SEEDS", "2"))
