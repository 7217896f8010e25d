/* The checkpoint calls. The target's own thread moves its state, as in the driver: the copy lies in the target's memory, and it
   goes on moving when the caller dies. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef OLD /* a driver from before these calls */
#define API __attribute__((visibility("hidden")))
#else
#define API
#endif

struct extent {
    struct extent *next;
    uint64_t serial, offset, size;
    char bytes[];
};

static struct extent *parked; /* of this process, in its own memory */
static struct process *self_;

/* in the target */

static void keep(const struct allocation *a) {
    char path[600];
    node_file(path, sizeof path, a);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    off_t at = 0, end;
    while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && (end = lseek(fd, at, SEEK_HOLE)) >= 0) {
        struct extent *e = malloc(sizeof *e + (size_t)(end - at));
        *e = (struct extent){parked, a->serial, (uint64_t)at, (uint64_t)(end - at)};
        for (off_t done = 0; done < end - at;) {
            ssize_t got = pread(fd, e->bytes + done, (size_t)(end - at - done), at + done);
            if (got <= 0) break;
            done += got;
        }
        parked = e;
        at = end;
    }
    close(fd);
    unlink(path);
}

static void bring_back(void) {
    char path[600];
    while (parked) {
        struct extent *e = parked;
        struct allocation like = {.serial = e->serial};
        node_file(path, sizeof path, &like);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        for (uint64_t done = 0; fd >= 0 && done < e->size;) {
            ssize_t put = pwrite(fd, e->bytes + done, e->size - done, (off_t)(e->offset + done));
            if (put <= 0) break;
            done += (uint64_t)put;
        }
        close(fd);
        parked = e->next;
        free(e);
    }
}

static int moved_to(const struct process *p, int gpu) {
    for (int i = 0; node->migrates && i < p->pairs; i++)
        if (p->from[i] == gpu) return p->to[i];
    return gpu;
}

static uint64_t bytes_of(const struct process *p, int gpu, int with_map) {
    uint64_t sum = 0;
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        const struct allocation *a = &node->allocation[i];
        if (a->owner == p - node->process + 1 && (gpu < 0 || (with_map ? moved_to(p, a->gpu) : a->gpu) == gpu)) sum += a->size;
    }
    return sum;
}

static double cost(const struct process *p) { return node->seconds + node->seconds_per_gb * (double)bytes_of(p, -1, 0) / 1e9; }

static int carry_out_checkpoint(struct process *p) {
    struct allocation mine[MOST_ALLOCATIONS / 8];
    int count = 0;
    node_lock();
    if (p->unsupported) {
        node_unlock();
        return NOT_SUPPORTED;
    }
    double rest = cost(p);
    for (int i = 0; i < MOST_ALLOCATIONS && count < MOST_ALLOCATIONS / 8; i++)
        if (node->allocation[i].owner == p - node->process + 1) mine[count++] = node->allocation[i];
    node_unlock();
    double began = node_now();
    for (int i = 0; i < count; i++)
        if (!mine[i].context) keep(&mine[i]);
    node_sleep(rest - (node_now() - began));
    node_lock();
    for (int i = 0; i < MOST_ALLOCATIONS; i++)
        if (node->allocation[i].owner == p - node->process + 1) node->allocation[i].resident = 0;
    p->state = CHECKPOINTED;
    node_unlock();
    return SUCCESS;
}

static int carry_out_restore(struct process *p) {
    node_lock();
    node_reap();
    int fits = 1;
    for (int gpu = 0; gpu < node->gpus; gpu++)
        fits &= node_used(gpu) + bytes_of(p, gpu, 1) <= node->gpu[gpu].total;
    if (!fits) {
        p->poisoned = 1;
        node_unlock();
        return OUT_OF_MEMORY;
    }
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        struct allocation *a = &node->allocation[i];
        if (a->owner == p - node->process + 1) {
            a->gpu = moved_to(p, a->gpu);
            a->resident = 1;
        }
    }
    for (int i = 0; i < p->visible; i++) p->gpus[i] = moved_to(p, p->gpus[i]);
    double rest = cost(p);
    node_unlock();
    double began = node_now();
    bring_back();
    node_sleep(rest - (node_now() - began));
    node_lock();
    p->state = LOCKED;
    node_unlock();
    return SUCCESS;
}

static void *serve(void *unused) {
    (void)unused;
    struct process *p = self_;
    uint32_t served = p->asked;
    p->thread = (pid_t)syscall(SYS_gettid);
    node_wake(p);
    for (;;) {
        uint32_t seen = __atomic_load_n(&p->wake, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&p->asked, __ATOMIC_SEQ_CST) == served) {
            node_wait(&p->wake, seen, 60);
            continue;
        }
        served = p->asked;
        p->result = p->command == OP_CHECKPOINT ? carry_out_checkpoint(p) : carry_out_restore(p);
        if (node->desync && !node_started(p->caller)) p->state = FAILED;
        __atomic_store_n(&p->answered, served, __ATOMIC_SEQ_CST);
        node_wake(p);
    }
    return NULL;
}

int start_thread(struct process *p) {
    sigset_t all, before;
    pthread_t thread;
    self_ = p;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (!failed && !__atomic_load_n(&p->thread, __ATOMIC_SEQ_CST)) node_sleep(0.0005);
    return failed;
}

/* in the caller */

static int reach(pid_t pid, struct process **found) {
    char path[64];
    if (node_attach()) return NO_DEVICE;
    snprintf(path, sizeof path, "/proc/%d/environ", pid); /* the same permission as its descriptors */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return OPERATING_SYSTEM;
    close(fd);
    if (!node_started(pid)) return OPERATING_SYSTEM;
    node_lock();
    *found = node_find(pid);
    node_unlock();
    return *found ? SUCCESS : NOT_INITIALIZED;
}

static int command(struct process *p, int what) {
    node_lock();
    if (p->asked != p->answered) {
        node_unlock();
        return ILLEGAL_STATE;
    }
    p->command = what;
    p->caller = getpid();
    uint32_t mine = p->asked + 1;
    __atomic_store_n(&p->asked, mine, __ATOMIC_SEQ_CST);
    node_unlock();
    node_wake(p);
    for (;;) {
        uint32_t seen = __atomic_load_n(&p->wake, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&p->answered, __ATOMIC_SEQ_CST) == mine) return p->result;
        node_wait(&p->wake, seen, 0.02);
        if (!node_alive(p)) return OPERATING_SYSTEM;
    }
}

/* 1: the call ends here with *code; 2: it goes on and answers *code at its end */
static int misfortune(int op, struct process *p, int *code) {
    struct fault f;
    pid_t pid = p->pid;
    int strikes = node_fault(op, pid, &f);
    if (p->pid != pid || !node_alive(p)) { /* it has ended meanwhile, and its place may be another's */
        *code = OPERATING_SYSTEM;
        return 1;
    }
    if (!strikes) return 0;
    *code = f.code;
    if (f.effect == FAIL) p->state = FAILED;
    if (f.effect == POISON) p->poisoned = 1;
    if (f.effect == KILL) {
        kill(p->pid, SIGKILL);
        while (node_alive(p)) node_sleep(0.001);
        *code = OPERATING_SYSTEM;
    }
    return f.effect == DONE ? 2 : 1;
}

API CUresult cuCheckpointProcessGetState(int pid, int *state) {
    struct process *p;
    struct fault f;
    double began = node_now();
    int code = reach(pid, &p);
    if (code == SUCCESS && node_fault(OP_STATE, pid, &f)) {
        code = f.code;
        if (f.effect == VALUE) *state = f.value;
    } else if (code == SUCCESS) {
        *state = p->state;
    }
    if (node) node_note(OP_STATE, pid, code, began);
    return code;
}

API CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    struct process *p;
    struct fault f;
    double began = node_now();
    int code = reach(pid, &p);
    if (code == SUCCESS && node_fault(OP_THREAD, pid, &f)) code = f.code;
    if (code == SUCCESS && !p->thread) code = NOT_INITIALIZED; /* cuInit alone: there is a state, but no context */
    if (code == SUCCESS) *tid = p->thread;
    if (node) node_note(OP_THREAD, pid, code, began);
    return code;
}

static CUresult lock_(struct process *p, unsigned timeout) {
    double end = timeout ? node_now() + timeout / 1e3 : 1e18;
    node_lock();
    if (p->state != RUNNING || p->locking) {
        node_unlock();
        return ILLEGAL_STATE;
    }
    p->locking = 1;
    for (;;) {
        double now = node_now();
        uint32_t seen = p->wake;
        if (!p->calls && p->busy_until <= now * 1e9) break;
        node_unlock();
        if (!node_alive(p)) return OPERATING_SYSTEM;
        if (now >= end) {
            p->locking = 0;
            node_wake(p);
            return NOT_READY;
        }
        node_wait(&p->wake, seen, 0.002);
        node_lock();
    }
    p->state = LOCKED;
    p->locking = 0;
    node_unlock();
    node_wake(p);
    return SUCCESS;
}

API CUresult cuCheckpointProcessLock(int pid, const CUcheckpointLockArgs *args) {
    struct process *p;
    double began = node_now();
    int code = reach(pid, &p), answer = 0, odd = 0;
    for (int i = 0; args && i < 7; i++) odd |= args->reserved1[i] != 0;
    if (code == SUCCESS && (odd || (args && args->reserved0))) code = INVALID_VALUE;
    if (code == SUCCESS) {
        int wrong = misfortune(OP_LOCK, p, &answer);
        if (wrong != 1) code = lock_(p, args ? args->timeoutMs : 0);
        if (wrong) code = answer;
    }
    if (node) node_note(OP_LOCK, pid, code, began);
    return code;
}

API CUresult cuCheckpointProcessCheckpoint(int pid, const void *args) {
    struct process *p;
    double began = node_now();
    int code = reach(pid, &p), answer = 0;
    (void)args;
    if (code == SUCCESS) {
        int wrong = misfortune(OP_CHECKPOINT, p, &answer);
        if (wrong != 1) code = p->state != LOCKED ? ILLEGAL_STATE : command(p, OP_CHECKPOINT);
        if (wrong) code = answer;
    }
    if (node) node_note(OP_CHECKPOINT, pid, code, began);
    return code;
}

static int mapping(struct process *p, const CUcheckpointRestoreArgs *args) {
    int moves = 0;
    p->pairs = 0;
    if (!args || (!args->gpuPairsCount && !args->gpuPairs)) return SUCCESS;
    if (node->version < 13000 || args->gpuPairsCount != (unsigned)node->gpus) return INVALID_VALUE; /* every GPU of the machine */
    unsigned from = 0, to = 0;
    for (unsigned i = 0; i < args->gpuPairsCount; i++) {
        int a = node_gpu_by_raw(args->gpuPairs[i].oldUuid), b = node_gpu_by_raw(args->gpuPairs[i].newUuid);
        if (a < 0 || b < 0 || from >> a & 1 || to >> b & 1 || strcmp(node->gpu[a].chip, node->gpu[b].chip)) return INVALID_VALUE;
        from |= 1u << a;
        to |= 1u << b;
        moves |= a != b;
        p->from[i] = a;
        p->to[i] = b;
    }
    if (moves && p->visible < node->gpus) return INVALID_VALUE; /* CUDA_VISIBLE_DEVICES hides some */
    p->pairs = node->gpus;
    return SUCCESS;
}

API CUresult cuCheckpointProcessRestore(int pid, const CUcheckpointRestoreArgs *args) {
    struct process *p;
    double began = node_now();
    int code = reach(pid, &p), answer = 0, persistent = 1;
    for (int i = 0; code == SUCCESS && i < node->gpus; i++) persistent &= node->gpu[i].persistent;
    if (code == SUCCESS && !persistent && !initialised) code = NOT_PERMITTED;
    if (code == SUCCESS) {
        int wrong = misfortune(OP_RESTORE, p, &answer);
        if (wrong != 1) {
            if (p->poisoned) code = OPERATING_SYSTEM;
            else if (p->state != CHECKPOINTED) code = ILLEGAL_STATE;
            else if ((code = mapping(p, args)) == SUCCESS) code = command(p, OP_RESTORE);
        }
        if (wrong) code = answer;
    }
    if (node) node_note(OP_RESTORE, pid, code, began);
    return code;
}

API CUresult cuCheckpointProcessUnlock(int pid, const void *args) {
    struct process *p;
    double began = node_now();
    int code = reach(pid, &p), answer = 0;
    (void)args;
    if (code == SUCCESS) {
        int wrong = misfortune(OP_UNLOCK, p, &answer);
        if (wrong != 1) {
            node_lock();
            code = p->state == LOCKED && p->asked == p->answered ? SUCCESS : ILLEGAL_STATE;
            if (code == SUCCESS) p->state = RUNNING;
            node_unlock();
            node_wake(p);
        }
        if (wrong) code = answer;
    }
    if (node) node_note(OP_UNLOCK, pid, code, began);
    return code;
}
