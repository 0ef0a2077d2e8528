// What a C program's lease stands for: its pool makes it, a store's operations hold it.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/capi/penstock.h"

struct penstock_lease {
    penstock::pool::Lease lease;
};
