"""Several processes that train one model: how they speak to each other."""
