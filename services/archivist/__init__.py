"""The log in, an archive that nobody changes out. Beside it, as a process of its own and off by default: `mirror`.

Owns: the segments of every pool's log and the chain over them, what is trimmed, which jobs are forgotten, checkpoints.
Reads: the log of every pool and of {_sys}; bodies of jobs that end; how far the snapshot and all groups are.
Writes: segments and bodies into the archive; the manifest; `job.forgotten`, `log.checkpointed`.
Promises: nothing leaves the log that is not in the archive and done with by all who read it; no entry is archived twice
or left out, whenever the process is killed; a job is forgotten only when its last event is archived and planned.
If killed: the next one takes the token when the lease ends, adopts a segment that was kept and not yet said, goes on.
"""
