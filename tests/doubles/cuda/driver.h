/* What the two halves of the double's libcuda share: numbers of the ABI and the calling process's own record. */
#pragma once
#include "node.h"

typedef int CUresult;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, OPERATING_SYSTEM = 304, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600,
    NOT_PERMITTED = 800, NOT_SUPPORTED = 801,
};

typedef struct { unsigned timeoutMs, reserved0; uint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { unsigned char oldUuid[16], newUuid[16]; } CUcheckpointGpuPair;
typedef struct { const CUcheckpointGpuPair *gpuPairs; unsigned gpuPairsCount, padding0; char reserved[48]; } CUcheckpointRestoreArgs;
_Static_assert(sizeof(CUcheckpointLockArgs) == 64 && sizeof(CUcheckpointRestoreArgs) == 64, "every args struct has 64 bytes");

extern int initialised; /* this process has called cuInit */

int start_thread(struct process *p);
