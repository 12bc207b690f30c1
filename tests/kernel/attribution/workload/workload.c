// workload: a process that does what it is told on its standard input, a line
// each, and answers each with a line. Static and small, for a slow guest.
//   workload                obeys
//   workload first          the same, and its first act is to tell its group
//   workload caps N,N CMD   runs CMD with no other capabilities than these ("none")
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *format, ...)
{
    static char line[65536];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    line[n++] = '\n';
    if (write(1, line, n) != n)
        _exit(1);
}

// group gives this task's /proc/self/cpu_resctrl_groups as "CTRL|MON".
static void group(char *text, size_t size)
{
    int fd = open("/proc/self/cpu_resctrl_groups", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    text[n < 0 ? 0 : n] = 0;
    close(fd);
    for (char *p = text; *p; p++)
        if (*p == '\n') *p = p[1] ? '|' : 0;
}

static void nap(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    syscall(SYS_nanosleep, &t, 0);
}

static void *idle(void *tid)
{
    if (tid)
        atomic_store((atomic_int *)tid, (int)syscall(SYS_gettid));
    for (;;) pause();
    return 0;
}

static void *spin(void *unused) { for (;;) __asm__ volatile("" ::: "memory"); return unused; }

static pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_attr_t a;
    pthread_t t;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    if (pthread_create(&t, &a, run, arg)) { say("no thread"); _exit(1); }
    return t;
}

// Storms. A short process shares our memory, which spares the guest the copies of
// page tables; it is a process of its own for everything that counts here.
static atomic_int calm;        // 1: stop forking, what lives stays; 2: end
static atomic_long started;
static long life;              // of a short process, in microseconds

enum { stack_size = 8192, stacks = 64 };

static int brief(void *unused) { nap(life); (void)unused; return 0; }

// flat is one parent whose children come and go.
static void *flat(void *unused)
{
    char *stack = malloc(stack_size);
    while (!calm) {
        if (clone(brief, stack + stack_size, CLONE_VM | CLONE_VFORK | SIGCHLD, 0) > 0)
            started++;
        else
            nap(1000);
    }
    return unused;
}

// chain is a process that starts its successor and ends: one that is never where
// it was seen.
struct chain { char *stack; int at; };

static int link_of(void *arg)
{
    struct chain *c = arg;
    nap(life);
    while (calm == 1)
        nap(10000);
    if (calm)
        return 0;
    c->at = (c->at + 1) % stacks;
    started++;
    while (clone(link_of, c->stack + (c->at + 1) * stack_size, CLONE_VM | CLONE_PARENT | SIGCHLD, c) < 0)
        nap(1000);
    return 0;
}

static void storm(int parents, int chains, long us)
{
    signal(SIGCHLD, SIG_IGN); // the kernel reaps
    life = us;
    for (int i = 0; i < parents; i++)
        start(flat, 0);
    for (int i = 0; i < chains; i++) {
        struct chain *c = malloc(sizeof *c);
        c->at = 0;
        c->stack = malloc(stacks * stack_size);
        if (clone(link_of, c->stack + stack_size, CLONE_VM | SIGCHLD, c) < 0)
            say("no chain");
    }
}

static void threads(int n)
{
    static char text[65536];
    text[0] = 0;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        atomic_int tid = 0;
        start(idle, &tid);
        while (!atomic_load(&tid))
            nap(100);
        at += snprintf(text + at, sizeof text - at, "%d ", atomic_load(&tid));
    }
    say("%s", text);
}

// children starts n that end with us; those of zero life are zombies.
static void children(int n, int zombies)
{
    static char text[65536];
    text[0] = 0;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (!pid) {
            if (zombies) _exit(0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) pause();
        }
        siginfo_t si;
        if (zombies)
            waitid(P_PID, pid, &si, WEXITED | WNOWAIT);
        at += snprintf(text + at, sizeof text - at, "%d ", pid);
    }
    say("%s", text);
}

static void *obey(void *unused)
{
    static char line[256];
    while (fgets(line, sizeof line, stdin)) {
        int a = 0, b = 0;
        long c = 0;
        char word[32] = "", text[512];
        sscanf(line, "%31s %d %d %ld", word, &a, &b, &c);
        if (!strcmp(word, "threads")) threads(a);
        else if (!strcmp(word, "children")) children(a, 0);
        else if (!strcmp(word, "zombies")) children(a, 1);
        else if (!strcmp(word, "busy")) { for (; a > 0; a--) start(spin, 0); say("busy"); }
        else if (!strcmp(word, "storm")) { storm(a, b, c); say("storm"); }
        else if (!strcmp(word, "calm")) { calm = 1; say("%ld", (long)started); }
        else if (!strcmp(word, "count")) say("%ld", (long)started);
        else if (!strcmp(word, "group")) { group(text, sizeof text); say("%s", text); }
        else if (!strcmp(word, "exec")) { execl("/proc/self/exe", "workload", "first", (char *)0); say("exec failed"); }
        else if (!strcmp(word, "leave")) { // the first thread ends, the process goes on
            static atomic_int left;
            if (!atomic_exchange(&left, 1)) { say("left"); start(obey, 0); syscall(SYS_exit, 0); }
        }
        else say("unknown: %s", word);
    }
    calm = 2;
    syscall(SYS_exit_group, 0);
    return unused;
}

static int keep(const char *list)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    memset(d, 0, sizeof d);
    char text[256];
    snprintf(text, sizeof text, "%s", list);
    for (char *s = strtok(text, ","); s; s = strtok(0, ","))
        if (strcmp(s, "none"))
            d[atoi(s) / 32].permitted |= 1u << atoi(s) % 32;
    for (int cap = 0; cap < 64; cap++)
        if (!(d[cap / 32].permitted >> cap % 32 & 1))
            prctl(PR_CAPBSET_DROP, cap); // EINVAL beyond the last one
    for (int i = 0; i < 2; i++)
        d[i].effective = d[i].permitted;
    return syscall(SYS_capset, &h, d);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "first")) {
        char text[512];
        group(text, sizeof text);
        say("%s", text);
    }
    if (argc > 3 && !strcmp(argv[1], "caps")) {
        if (keep(argv[2])) { perror("capset"); return 1; }
        execv(argv[3], argv + 3);
        perror(argv[3]);
        return 1;
    }
    obey(0);
    return 0;
}
