"""`penstock launch`: a script as many processes, with the options of DeepSpeed's launcher. Without torch.

What is said becomes hosts with slots (`hostfile`, `filters`, `slots`), these a `Job`, the job commands: one for each
rank of this machine (`local`), one for each host (`ssh`), or one for all (`mpi`). `children` alone starts and ends
processes.
"""
