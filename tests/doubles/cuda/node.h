/* The machine that the double pretends: GPUs, processes with CUDA state, and what is on each card.

   One file, mapped by every process that takes part (the file `node` beside the library names it) and guarded by one robust mutex. Device memory is a
   file per allocation beside it, written only where a program wrote: a card of 80 GB costs nothing, yet what was checkpointed is
   gone from it. Written from the public ABI (cuda.h) and from what users of the real driver have reported. */
#pragma once
#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

enum { MOST_GPUS = 16, MOST_PROCESSES = 512, MOST_ALLOCATIONS = 8192, MOST_FAULTS = 32, MOST_RECORDS = 8192, MOST_PAIRS = 16 };

enum state { RUNNING, LOCKED, CHECKPOINTED, FAILED };

enum operation { OP_INIT, OP_STATE, OP_THREAD, OP_LOCK, OP_CHECKPOINT, OP_RESTORE, OP_UNLOCK, OP_ALLOCATE, OP_MEMORY, OPERATIONS };

/* What a fault does: answer a code and nothing else; answer it and leave the target FAILED; never come back until the fault is
   lifted; kill the target; take longer; poison the target as a restore without room does; do the work and answer the code anyway;
   answer a value (for a state) */
enum effect { ANSWER, FAIL, HANG, KILL, SLOW, POISON, DONE, VALUE };

struct gpu {
    char uuid[48], name[64], chip[32];
    unsigned char raw[16];
    uint64_t total, foreign; /* foreign: used by somebody outside */
    int mig, virtual_, mps, persistent;
};

struct allocation {
    int owner; /* slot + 1, 0: free */
    int gpu, resident, context;
    uint64_t address, size, serial;
};

struct process {
    pid_t pid, thread; /* thread: the one that moves the state; 0 while there is no context */
    uint64_t started;
    int state, poisoned, calls, locking, unsupported;
    uint32_t wake; /* futex: anything about this process has changed */
    uint64_t busy_until, worked_at; /* nanoseconds, monotonic */
    int visible, gpus[MOST_GPUS], born[MOST_GPUS]; /* ordinal -> GPU now, and at its start */
    /* the command that its thread carries out */
    int command, result, pairs, from[MOST_PAIRS], to[MOST_PAIRS];
    pid_t caller;
    uint32_t asked, answered;
};

struct fault {
    int used, op, skip, code, effect, value, left, fired;
    pid_t pid; /* 0: any */
    double seconds;
};

struct record {
    int op, pid, code;
    double began, took; /* seconds, monotonic */
};

struct node {
    uint64_t magic;
    pthread_mutex_t mutex;
    char driver[32];
    int version, gpus;
    struct gpu gpu[MOST_GPUS];
    double init_seconds, seconds, seconds_per_gb;
    uint64_t context_bytes, residue_bytes;
    int migrates, desync, host_pids;
    struct process process[MOST_PROCESSES];
    struct allocation allocation[MOST_ALLOCATIONS];
    uint64_t serial, address;
    struct fault fault[MOST_FAULTS];
    struct record record[MOST_RECORDS];
    uint64_t records;
};

extern struct node *node;
extern char node_path[];

int node_attach(void);               /* 0, or -1 where no `node` is beside the library */
int node_map(const char *path, int create);
void node_lock(void);
void node_unlock(void);
void node_wake(struct process *p);
void node_wait(uint32_t *word, uint32_t seen, double most);
double node_now(void);               /* seconds, monotonic */
void node_sleep(double seconds);
uint64_t node_started(pid_t pid);    /* 0: no such process, or one whose last thread has ended */
struct process *node_find(pid_t pid);
struct process *node_join(pid_t pid);
int node_alive(struct process *p);
void node_reap(void);                /* what dead processes had is free again */
void node_free_process(struct process *p);
uint64_t node_used(int gpu);         /* bytes; the caller holds the lock */
int node_gpu_by_raw(const unsigned char *raw);
int node_gpu_by_text(const char *uuid);
void node_file(char *path, size_t size, const struct allocation *a);
int node_fault(int op, pid_t pid, struct fault *out); /* 1: this call is to go wrong as *out says; waits out HANG and SLOW itself */
void node_note(int op, pid_t pid, int code, double began);
