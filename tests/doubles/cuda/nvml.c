/* The double's libnvidia-ml: the same machine, as its administrator sees it. */
#define _GNU_SOURCE
#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
typedef struct gpu *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned pid; unsigned long long timeStamp; unsigned smUtil, memUtil, encUtil, decUtil; } nvmlProcessUtilizationSample_t;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;

static int started;

#define NEED                              \
    if (!started) return UNINITIALIZED;

static int index_of(nvmlDevice_t d) { return (int)(d - node->gpu); }

int nvmlInit_v2(void) {
    if (node_attach()) return DRIVER_NOT_LOADED;
    started++;
    return OK;
}
int nvmlInitWithFlags(unsigned flags) { return (void)flags, nvmlInit_v2(); }
int nvmlShutdown(void) {
    NEED started--;
    return OK;
}
const char *nvmlErrorString(int code) {
    return code == OK ? "Success" : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : code == NOT_SUPPORTED ? "Not Supported"
         : code == NOT_FOUND ? "Not Found" : code == UNINITIALIZED ? "Uninitialized"
         : code == INVALID_ARGUMENT ? "Invalid Argument" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    NEED snprintf(text, size, "%s", node->driver);
    return OK;
}
int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    NEED snprintf(text, size, "%d.%s", node->version / 1000, node->driver);
    return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    NEED *version = node->version;
    return OK;
}
int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    NEED *count = (unsigned)node->gpus;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *d) {
    NEED if (index >= (unsigned)node->gpus) return INVALID_ARGUMENT;
    *d = &node->gpu[index];
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d) {
    NEED int found = node_gpu_by_text(uuid);
    if (found < 0) return NOT_FOUND;
    *d = &node->gpu[found];
    return OK;
}
int nvmlDeviceGetUUID(nvmlDevice_t d, char *text, unsigned size) {
    NEED snprintf(text, size, "%s", d->uuid);
    return OK;
}
int nvmlDeviceGetName(nvmlDevice_t d, char *text, unsigned size) {
    NEED snprintf(text, size, "%s", d->name);
    return OK;
}
int nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *index) {
    NEED *index = (unsigned)index_of(d);
    return OK;
}
int nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *minor) { return nvmlDeviceGetIndex(d, minor); }

static int memory(nvmlDevice_t d, unsigned long long *total, unsigned long long *used) {
    struct fault f;
    node_lock();
    node_reap();
    *total = d->total;
    *used = node_used(index_of(d));
    node_unlock();
    if (!node_fault(OP_MEMORY, 0, &f)) return OK;
    if (f.effect == VALUE) *used += (unsigned long long)f.value << 20;
    return f.effect == VALUE ? OK : f.code;
}
int nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
    NEED int code = memory(d, &m->total, &m->used);
    m->free = m->total - m->used;
    return code;
}
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
    NEED int code = memory(d, &m->total, &m->used);
    m->free = m->total - m->used;
    m->reserved = 0;
    return code;
}

static unsigned seen(pid_t pid) { return (unsigned)pid + (node->host_pids ? 1000000u : 0); }

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    NEED unsigned found = 0;
    node_lock();
    node_reap();
    for (int i = 0; i < MOST_PROCESSES; i++) {
        struct process *p = &node->process[i];
        unsigned long long used = 0;
        for (int j = 0; p->pid && j < MOST_ALLOCATIONS; j++)
            if (node->allocation[j].owner == i + 1 && node->allocation[j].resident && node->allocation[j].gpu == index_of(d))
                used += node->allocation[j].size;
        if (!used) continue;
        if (out && found < *count) out[found] = (nvmlProcessInfo_t){seen(p->pid), used, ~0u, ~0u};
        found++;
    }
    node_unlock();
    int fits = out && found <= *count;
    *count = found;
    return fits || !found ? OK : INSUFFICIENT_SIZE;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    NEED(void) d;
    (void)out;
    *count = 0;
    return OK;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    NEED unsigned room = *count;
    *count = d->mps ? 1 : 0;
    if (!d->mps) return OK;
    if (!out || !room) return INSUFFICIENT_SIZE;
    out[0] = (nvmlProcessInfo_t){1, 1 << 20, ~0u, ~0u};
    return OK;
}
int nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *out, unsigned *count, unsigned long long since) {
    NEED struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    double offset = wall.tv_sec + wall.tv_nsec * 1e-9 - node_now();
    unsigned found = 0;
    node_lock();
    for (int i = 0; i < MOST_PROCESSES; i++) {
        struct process *p = &node->process[i];
        double at = p->worked_at * 1e-9, now = node_now();
        unsigned long long stamp = (unsigned long long)(((at < now ? at : now) + offset) * 1e6);
        if (!p->pid || !p->worked_at || stamp < since || p->gpus[0] != index_of(d)) continue;
        if (out && found < *count) out[found] = (nvmlProcessUtilizationSample_t){seen(p->pid), stamp, 90, 10, 0, 0};
        found++;
    }
    node_unlock();
    int fits = out && found <= *count;
    *count = found;
    return !found ? NOT_FOUND : fits ? OK : INSUFFICIENT_SIZE;
}
int nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
    NEED *u = (nvmlUtilization_t){0, 0};
    node_lock();
    for (int i = 0; i < MOST_PROCESSES; i++)
        if (node->process[i].pid && node->process[i].busy_until > node_now() * 1e9 && node->process[i].gpus[0] == index_of(d)) u->gpu = 90;
    node_unlock();
    return OK;
}

int nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending) {
    NEED *current = *pending = (unsigned)d->mig;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *count) {
    NEED *count = d->mig ? 1 : 0;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index, nvmlDevice_t *out) {
    NEED if (!d->mig || index) return NOT_FOUND;
    *out = d;
    return OK;
}
int nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, unsigned *is) {
    NEED *is = (unsigned)d->mig;
    return OK;
}
int nvmlDeviceGetVirtualizationMode(nvmlDevice_t d, int *mode) {
    NEED *mode = d->virtual_;
    return OK;
}
int nvmlDeviceGetPersistenceMode(nvmlDevice_t d, int *mode) {
    NEED *mode = d->persistent;
    return OK;
}
int nvmlDeviceGetComputeMode(nvmlDevice_t d, int *mode) {
    NEED(void) d;
    *mode = 0;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci) {
    NEED memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)index_of(d) + 1;
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    return OK;
}
