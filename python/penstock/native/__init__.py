"""What calls libpenstock_python.so: the core on NVMe, and how a configuration is read."""
