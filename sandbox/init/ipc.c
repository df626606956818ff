/* Removes System V shared memory, queues and semaphores, which outlive their processes and fill the container's memory. */
#include "init.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>

union argument { /* of semctl(2), whose caller defines it */
    struct semid_ds *is;
    struct seminfo *all;
};

static union {
    struct shmid_ds memory;
    struct msqid_ds queue;
    struct semid_ds semaphores;
} is;

static int look_at_memory(int i) { return shmctl(i, SHM_STAT_ANY, &is.memory); }
static int look_at_queue(int i) { return msgctl(i, MSG_STAT_ANY, &is.queue); }
static int look_at_semaphores(int i) { return semctl(i, 0, SEM_STAT_ANY, (union argument){.is = &is.semaphores}); }

static void remove_memory(int id) { shmctl(id, IPC_RMID, NULL); }
static void remove_queue(int id) { msgctl(id, IPC_RMID, NULL); }
static void remove_semaphores(int id) { semctl(id, 0, IPC_RMID); }

/* Only the owner may remove one: PID 1 rarely has CAP_SYS_ADMIN.  Changing owner may make this process dumpable. */
static void remove_all(int last, int (*look)(int), const struct ipc_perm *whose, void (*remove_one)(int)) {
    for (int i = 0; i <= last; i++) {
        int id = look(i);
        if (id < 0 || seteuid(whose->uid) < 0) continue;
        remove_one(id);
        seteuid(0);
        prctl(PR_SET_DUMPABLE, 0);
    }
}

/* Call it only if nothing else runs that could use them. */
void remove_ipc(void) {
    struct shm_info memory;
    struct msginfo queues;
    struct seminfo semaphores;
    int last_memory = shmctl(0, SHM_INFO, (void *)&memory);
    int last_queue = msgctl(0, MSG_INFO, (void *)&queues);
    int last_semaphores = semctl(0, 0, SEM_INFO, (union argument){.all = &semaphores});
    remove_all(last_memory, look_at_memory, &is.memory.shm_perm, remove_memory);
    remove_all(last_queue, look_at_queue, &is.queue.msg_perm, remove_queue);
    remove_all(last_semaphores, look_at_semaphores, &is.semaphores.sem_perm, remove_semaphores);
}
