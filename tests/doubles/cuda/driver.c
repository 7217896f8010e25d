/* The CUDA calls that a program makes: devices, contexts, memory, streams. Each waits while its process is locked or
   checkpointed. Streams are in order and done at once, but for doubleWork, which keeps the process busy for a while. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct context { int device, primary; };
typedef struct context *CUcontext;
typedef uint64_t CUdeviceptr;
typedef struct { unsigned char bytes[16]; } CUuuid;

int initialised;
static struct process *self;
static struct context primary[MOST_GPUS];
static int retained[MOST_GPUS];
static __thread CUcontext stack[32];
static __thread int depth;

static void forget_self(void) { /* in the child of a fork CUDA can't be used */
    self = NULL;
    initialised = initialised ? -1 : 0;
}

static int enter(void) {
    if (initialised != 1 || !self) return NOT_INITIALIZED;
    for (;;) {
        node_lock();
        if (self->state == RUNNING && !self->locking) {
            self->calls++;
            node_unlock();
            return SUCCESS;
        }
        uint32_t seen = self->wake;
        node_unlock();
        node_wait(&self->wake, seen, 1);
    }
}

static CUresult leave(int code) {
    node_lock();
    self->calls--;
    node_unlock();
    node_wake(self);
    return code;
}

#define CALL(...)                         \
    {                                     \
        int code = enter();               \
        if (code) return code;            \
        {__VA_ARGS__} return leave(code); \
    }
#define WITH_CONTEXT                                                  \
    if (!depth || !stack[depth - 1]) return leave(INVALID_CONTEXT);

/* start */

static void see_devices(struct process *p) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    if (!wanted) {
        for (int i = 0; i < node->gpus; i++) p->gpus[p->visible++] = i;
    } else {
        char text[2048], *rest = NULL;
        snprintf(text, sizeof text, "%s", wanted);
        for (char *each = strtok_r(text, ",", &rest); each; each = strtok_r(NULL, ",", &rest)) {
            char *end;
            long index = strtol(each, &end, 10);
            int gpu = *end ? node_gpu_by_text(each) : (int)index;
            if (gpu < 0 || gpu >= node->gpus) break; /* what follows an unknown one isn't seen */
            p->gpus[p->visible++] = gpu;
        }
    }
    memcpy(p->born, p->gpus, sizeof p->born);
}

CUresult cuInit(unsigned flags) {
    struct fault f;
    if (flags) return INVALID_VALUE;
    if (initialised) return initialised == 1 ? SUCCESS : NOT_INITIALIZED;
    if (node_attach() || !node->gpus) return NO_DEVICE;
    if (node_fault(OP_INIT, getpid(), &f)) return f.code;
    node_sleep(node->init_seconds);
    node_lock();
    struct process *p = node_join(getpid());
    if (p) see_devices(p);
    node_unlock();
    if (!p) return OUT_OF_MEMORY;
    if (!p->visible) {
        node_lock();
        p->pid = 0;
        node_unlock();
        return NO_DEVICE;
    }
    self = p;
    for (int i = 0; i < MOST_GPUS; i++) primary[i] = (struct context){i, 1};
    pthread_atfork(NULL, NULL, forget_self);
    initialised = 1;
    return SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = node_attach() ? 0 : node->version;
    return SUCCESS;
}

static const struct { int code; const char *name, *text; } NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}, {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"}, {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

static CUresult look_up(int code, const char **out, int text) {
    for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].code == code) {
            *out = text ? NAMES[i].text : NAMES[i].name;
            return SUCCESS;
        }
    *out = NULL;
    return INVALID_VALUE;
}

CUresult cuGetErrorName(int code, const char **out) { return look_up(code, out, 0); }
CUresult cuGetErrorString(int code, const char **out) { return look_up(code, out, 1); }

CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, int *status) {
    static void *me;
    char name[128];
    Dl_info info;
    (void)flags;
    *found = NULL;
    if (!me && dladdr((void *)cuInit, &info)) me = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!strncmp(symbol, "cuCheckpoint", 12) && (version < 12080 || node_attach() || node->version < 12080)) {
        if (status) *status = 2; /* the version isn't sufficient */
        return SUCCESS;
    }
    for (int v = 4; v >= 1 && !*found; v--) {
        snprintf(name, sizeof name, v > 1 ? "%s_v%d" : "%s", symbol, v);
        *found = dlsym(me, name);
    }
    if (status) *status = *found ? 0 : 1;
    return *found ? SUCCESS : NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, found, version, flags, NULL);
}

/* devices */

static int bad(int device) { return device < 0 || device >= self->visible; }

CUresult cuDeviceGetCount(int *count) {
    if (initialised != 1) return NOT_INITIALIZED;
    *count = self->visible;
    return SUCCESS;
}

CUresult cuDeviceGet(int *device, int ordinal) {
    if (initialised != 1) return NOT_INITIALIZED;
    if (bad(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, int device) CALL(
    if (bad(device)) code = INVALID_DEVICE;
    else memcpy(uuid->bytes, node->gpu[self->gpus[device]].raw, 16);
)
CUresult cuDeviceGetUuid(CUuuid *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuDeviceGetName(char *name, int size, int device) CALL(
    if (bad(device)) code = INVALID_DEVICE;
    else snprintf(name, (size_t)size, "%s", node->gpu[self->gpus[device]].name);
)

CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) CALL(
    if (bad(device)) code = INVALID_DEVICE;
    else *bytes = node->gpu[self->gpus[device]].total;
)

CUresult cuDeviceGetPCIBusId(char *id, int size, int device) CALL( /* stays what it was, wherever the state has gone */
    if (bad(device)) code = INVALID_DEVICE;
    else snprintf(id, (size_t)size, "0000:%02X:00.0", self->born[device] + 1);
)

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) CALL(
    if (bad(device)) code = INVALID_DEVICE;
    else *value = attribute == 75 ? 9 : attribute == 41 ? 1 : attribute == 10 ? 32 : attribute == 1 ? 1024 : 0;
)

CUresult cuDeviceCanAccessPeer(int *can, int a, int b) CALL(*can = 0; if (bad(a) || bad(b)) code = INVALID_DEVICE;)

/* contexts */

static int occupy(int device) {
    int code = OUT_OF_MEMORY, gpu = self->gpus[device];
    node_lock();
    node_reap();
    if (node_used(gpu) + node->context_bytes <= node->gpu[gpu].total)
        for (int i = 0; i < MOST_ALLOCATIONS && code; i++)
            if (!node->allocation[i].owner) {
                node->allocation[i] = (struct allocation){(int)(self - node->process) + 1, gpu, 1, 1, 0, node->context_bytes, ++node->serial};
                code = SUCCESS;
            }
    node_unlock();
    return code || self->thread ? code : start_thread(self);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, int device) CALL(
    if (bad(device)) return leave(INVALID_DEVICE);
    if (!retained[device]) code = occupy(device);
    if (!code) {
        retained[device]++;
        *context = &primary[device];
    }
)
CUresult cuDevicePrimaryCtxRelease_v2(int device) CALL(if (bad(device)) code = INVALID_DEVICE;)
CUresult cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) CALL((void)flags; if (bad(device)) code = INVALID_DEVICE;)
CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) CALL(
    if (bad(device)) return leave(INVALID_DEVICE);
    *flags = 0;
    *active = retained[device] > 0;
)

static CUresult create(CUcontext *context, int device) CALL(
    if (bad(device)) return leave(INVALID_DEVICE);
    code = occupy(device);
    if (!code && depth < 32) {
        *context = malloc(sizeof **context);
        **context = (struct context){device, 0};
        stack[depth++] = *context;
    }
)
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, int device) { return (void)flags, create(context, device); }
CUresult cuCtxCreate_v4(CUcontext *context, void *p, unsigned flags, int device) { return (void)p, (void)flags, create(context, device); }

CUresult cuCtxSetCurrent(CUcontext context) {
    if (initialised != 1) return NOT_INITIALIZED;
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    if (initialised != 1) return NOT_INITIALIZED;
    *context = depth ? stack[depth - 1] : NULL;
    return SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (initialised != 1) return NOT_INITIALIZED;
    if (depth == 32) return INVALID_VALUE;
    stack[depth++] = context;
    return SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (initialised != 1) return NOT_INITIALIZED;
    if (!depth) return INVALID_CONTEXT;
    CUcontext top = stack[--depth];
    if (context) *context = top;
    return SUCCESS;
}
CUresult cuCtxGetDevice(int *device) CALL(WITH_CONTEXT *device = stack[depth - 1]->device;)
CUresult cuCtxGetDevice_v2(int *device, CUcontext context) CALL(*device = context ? context->device : stack[depth - 1]->device;)
CUresult cuCtxGetFlags(unsigned *flags) CALL(WITH_CONTEXT *flags = 0;)
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) { return (void)context, *version = 3020, SUCCESS; }
CUresult cuCtxGetId(CUcontext context, unsigned long long *id) { return *id = (uintptr_t)context, SUCCESS; }

static void finish(void) { /* all submitted work */
    while (self->busy_until > node_now() * 1e9) node_sleep(self->busy_until * 1e-9 - node_now());
}
CUresult cuCtxSynchronize(void) CALL(WITH_CONTEXT finish();)

/* memory */

static struct allocation *at(CUdeviceptr address, size_t size) {
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        struct allocation *a = &node->allocation[i];
        if (a->owner == self - node->process + 1 && !a->context && address >= a->address && address + size <= a->address + a->size) return a;
    }
    return NULL;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) CALL(
    struct fault f;
    WITH_CONTEXT
    if (node_fault(OP_ALLOCATE, self->pid, &f)) return leave(f.code);
    if (!size) return leave(INVALID_VALUE);
    int gpu = self->gpus[stack[depth - 1]->device];
    node_lock();
    node_reap();
    code = OUT_OF_MEMORY;
    if (node_used(gpu) + size <= node->gpu[gpu].total)
        for (int i = 0; i < MOST_ALLOCATIONS && code; i++)
            if (!node->allocation[i].owner) {
                node->allocation[i] = (struct allocation){(int)(self - node->process) + 1, gpu, 1, 0, node->address, size, ++node->serial};
                *address = node->address;
                node->address += (size + 0x1fffff) & ~0x1fffffull;
                code = SUCCESS;
            }
    node_unlock();
)

CUresult cuMemFree_v2(CUdeviceptr address) CALL(
    char path[600];
    node_lock();
    struct allocation *a = at(address, 0);
    if (a && a->address == address) {
        node_file(path, sizeof path, a);
        unlink(path);
        a->owner = 0;
    } else code = INVALID_VALUE;
    node_unlock();
)

CUresult cuMemGetInfo_v2(size_t *free_, size_t *total) CALL(
    WITH_CONTEXT
    int gpu = self->gpus[stack[depth - 1]->device];
    node_lock();
    node_reap();
    *total = node->gpu[gpu].total;
    *free_ = *total - node_used(gpu);
    node_unlock();
)

static int transfer(CUdeviceptr address, void *host, size_t size, int to_device) {
    char path[600];
    node_lock();
    struct allocation *found = at(address, size), a = found ? *found : (struct allocation){0};
    node_unlock();
    if (!found) return INVALID_VALUE;
    node_file(path, sizeof path, &a);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return OPERATING_SYSTEM;
    for (size_t done = 0; done < size;) {
        off_t where = (off_t)(address - a.address + done);
        ssize_t n = to_device ? pwrite(fd, (char *)host + done, size - done, where) : pread(fd, (char *)host + done, size - done, where);
        if (n == 0 && !to_device) { /* never written: as good as any other content */
            memset((char *)host + done, 0, size - done);
            break;
        }
        if (n <= 0) {
            close(fd);
            return OPERATING_SYSTEM;
        }
        done += (size_t)n;
    }
    close(fd);
    return SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) CALL(code = transfer(to, (void *)from, size, 1);)
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) CALL(finish(); code = transfer(from, to, size, 0);)
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *s) { return (void)s, cuMemcpyHtoD_v2(to, from, size); }
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *s) { return (void)s, cuMemcpyDtoH_v2(to, from, size); }

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) CALL(
    char *part = malloc(1 << 20);
    for (size_t done = 0; done < size && !code; done += 1 << 20) {
        size_t n = size - done < 1 << 20 ? size - done : 1 << 20;
        code = transfer(from + done, part, n, 0);
        if (!code) code = transfer(to + done, part, n, 1);
    }
    free(part);
)
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, void *s) { return (void)s, cuMemcpyDtoD_v2(to, from, size); }

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
    node_lock();
    int to_device = self && at(to, size), from_device = self && at(from, size);
    node_unlock();
    if (to_device && from_device) return cuMemcpyDtoDAsync_v2(to, from, size, stream);
    if (to_device) return cuMemcpyHtoD_v2(to, (void *)(uintptr_t)from, size);
    return cuMemcpyDtoH_v2((void *)(uintptr_t)to, from, size);
}

static int fill(CUdeviceptr to, const void *unit, size_t width, size_t count) {
    char part[1 << 16];
    int code = SUCCESS;
    for (size_t i = 0; i < sizeof part; i += width) memcpy(part + i, unit, width);
    for (size_t done = 0, size = width * count; done < size && !code; done += sizeof part)
        code = transfer(to + done, part, size - done < sizeof part ? size - done : sizeof part, 1);
    return code;
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) CALL(code = fill(to, &value, 1, count);)
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) CALL(code = fill(to, &value, 4, count);)
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, void *s) { return (void)s, cuMemsetD8_v2(to, v, n); }
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned v, size_t n, void *s) { return (void)s, cuMemsetD32_v2(to, v, n); }

CUresult cuMemHostAlloc(void **host, size_t size, unsigned flags) CALL((void)flags; *host = malloc(size); if (!*host) code = OUT_OF_MEMORY;)
CUresult cuMemAllocHost_v2(void **host, size_t size) { return cuMemHostAlloc(host, size, 0); }
CUresult cuMemFreeHost(void *host) CALL(free(host);)

static CUresult unsupported(void) { /* by the checkpoint calls, from now on */
    node_lock();
    self->unsupported = 1;
    node_unlock();
    return SUCCESS;
}
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    (void)flags;
    int code = cuMemAlloc_v2(address, size);
    return code ? code : unsupported();
}
CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr address) CALL(
    memset(handle, 0, 64);
    memcpy(handle, &address, sizeof address);
    unsupported();
)

CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) CALL(
    node_lock();
    struct allocation *a = at(address, 0);
    if (!a) code = INVALID_VALUE;
    else if (attribute == 2) *(int *)data = 2;                      /* memory type: device */
    else if (attribute == 9) *(int *)data = stack[depth ? depth - 1 : 0] ? stack[depth - 1]->device : 0;
    else if (attribute == 8) *(int *)data = 0;                      /* not managed */
    else code = INVALID_VALUE;
    node_unlock();
)

/* streams and events: in order, and done at once */

static CUresult token(void **out) CALL(WITH_CONTEXT *out = malloc(16);)
static CUresult away(void *token_) CALL(free(token_);)
CUresult cuStreamCreate(void **s, unsigned flags) { return (void)flags, token(s); }
CUresult cuStreamCreateWithPriority(void **s, unsigned flags, int priority) { return (void)flags, (void)priority, token(s); }
CUresult cuStreamDestroy_v2(void *s) { return away(s); }
CUresult cuStreamSynchronize(void *s) CALL((void)s; finish();)
CUresult cuStreamQuery(void *s) CALL((void)s; if (self->busy_until > node_now() * 1e9) code = NOT_READY;)
CUresult cuStreamWaitEvent(void *s, void *e, unsigned flags) CALL((void)s; (void)e; (void)flags;)
CUresult cuStreamGetFlags(void *s, unsigned *flags) CALL((void)s; *flags = 1;)
CUresult cuStreamGetPriority(void *s, int *priority) CALL((void)s; *priority = 0;)
CUresult cuStreamGetCtx(void *s, CUcontext *context) CALL((void)s; WITH_CONTEXT *context = stack[depth - 1];)
CUresult cuStreamIsCapturing(void *s, int *status) CALL((void)s; *status = 0;)
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) CALL(*least = 0; *greatest = -1;)
CUresult cuEventCreate(void **e, unsigned flags) { return (void)flags, token(e); }
CUresult cuEventDestroy_v2(void *e) { return away(e); }
CUresult cuEventRecord(void *e, void *s) CALL((void)s; *(double *)e = node_now();)
CUresult cuEventSynchronize(void *e) CALL((void)e; finish();)
CUresult cuEventQuery(void *e) CALL((void)e; if (self->busy_until > node_now() * 1e9) code = NOT_READY;)
CUresult cuEventElapsedTime_v2(float *ms, void *a, void *b) CALL(*ms = (float)((*(double *)b - *(double *)a) * 1e3);)

/* Work on the GPU for so many milliseconds; returns at once, as a kernel launch does. Not of the ABI. */
CUresult doubleWork(unsigned milliseconds) CALL(
    uint64_t now = (uint64_t)(node_now() * 1e9);
    node_lock();
    self->busy_until = (self->busy_until > now ? self->busy_until : now) + milliseconds * 1000000ull;
    self->worked_at = self->busy_until;
    node_unlock();
)
