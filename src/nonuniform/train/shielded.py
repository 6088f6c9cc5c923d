"""For the server that workers are forked from: signals of the run are the launcher's to answer.

A terminal that closes, and most batch systems, signal every process of a job. Workers that died of
it could not write the last checkpoint that the launcher asks them for. They end with their launcher
all the same, whatever becomes of it. Imported there, and by nobody else.
"""

import signal

for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(_number, signal.SIG_IGN)
