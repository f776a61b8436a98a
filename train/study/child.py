"""Inside the process of one run: the command ``train``, which ends when the study that started it does.

python -P -m train.study.child OPTIONS of train
"""

import os
import signal
import sys
import threading

from train.cli import main


def end_with_the_study() -> None:
    """End this process at once when standard input closes: the study holds it open, and a kill closes it too.

    A run that ends at any moment can be gone on with, so nothing is tidied.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study is interrupted, and ends this one
    threading.Thread(target=end_with_the_study, daemon=True).start()
    sys.argv[0] = "train"  # so that run.json records a command to type
    main()
