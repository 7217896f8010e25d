/* What a test does to the pretended machine, and reads from it. */
#include "node.h"

#include <stdio.h>
#include <string.h>

int control_create(const char *path, const char *driver, int version) {
    if (node_map(path, 1)) return -1;
    snprintf(node->driver, sizeof node->driver, "%s", driver);
    node->version = version;
    return 0;
}

int control_add_gpu(const char *uuid, const unsigned char *raw, const char *name, const char *chip, uint64_t total) {
    if (node->gpus == MOST_GPUS) return -1;
    struct gpu *g = &node->gpu[node->gpus];
    snprintf(g->uuid, sizeof g->uuid, "%s", uuid);
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(g->chip, sizeof g->chip, "%s", chip);
    memcpy(g->raw, raw, 16);
    g->total = total;
    g->persistent = 1;
    return node->gpus++;
}

int control_set_gpu(int gpu, const char *what, uint64_t value) {
    struct gpu *g = &node->gpu[gpu];
    if (!strcmp(what, "foreign")) g->foreign = value;
    else if (!strcmp(what, "mig")) g->mig = (int)value;
    else if (!strcmp(what, "virtual")) g->virtual_ = (int)value;
    else if (!strcmp(what, "mps")) g->mps = (int)value;
    else if (!strcmp(what, "persistent")) g->persistent = (int)value;
    else return -1;
    return 0;
}

int control_set(const char *what, double value) {
    if (!strcmp(what, "init_seconds")) node->init_seconds = value;
    else if (!strcmp(what, "seconds")) node->seconds = value;
    else if (!strcmp(what, "seconds_per_gb")) node->seconds_per_gb = value;
    else if (!strcmp(what, "context_bytes")) node->context_bytes = (uint64_t)value;
    else if (!strcmp(what, "residue_bytes")) node->residue_bytes = (uint64_t)value;
    else if (!strcmp(what, "migrates")) node->migrates = (int)value;
    else if (!strcmp(what, "desync")) node->desync = (int)value;
    else if (!strcmp(what, "host_pids")) node->host_pids = (int)value;
    else return -1;
    return 0;
}

int control_fault(int op, int pid, int skip, int times, int code, int effect, int value, double seconds) {
    for (int i = 0; i < MOST_FAULTS; i++) {
        struct fault *f = &node->fault[i];
        if (f->used) continue;
        *f = (struct fault){0, op, skip, code, effect, value, times, 0, pid, seconds};
        f->used = 1;
        return i;
    }
    return -1;
}

int control_lift(int fault) {
    int fired = node->fault[fault].fired;
    node->fault[fault].used = 0;
    return fired;
}

int control_fired(int fault) { return node->fault[fault].fired; }

uint64_t control_used(int gpu) {
    node_lock();
    node_reap();
    uint64_t used = node_used(gpu);
    node_unlock();
    return used;
}

int control_state(int pid) { /* -1: no such process; 16 added: poisoned */
    node_lock();
    struct process *p = node_find(pid);
    int state = p ? p->state + 16 * p->poisoned : -1;
    node_unlock();
    return state;
}

int control_poison(int pid) {
    node_lock();
    struct process *p = node_find(pid);
    if (p) p->poisoned = 1;
    node_unlock();
    return p ? 0 : -1;
}

uint64_t control_records(uint64_t from, struct record *out, uint64_t most) {
    node_lock();
    uint64_t count = 0;
    for (uint64_t i = from; i < node->records && count < most; i++) out[count++] = node->record[i % MOST_RECORDS];
    node_unlock();
    return count;
}
