/*
 * Lease, barrier and fence: what keeps two leaders from writing.
 *
 * Two candidates, one server. A candidate that is frozen is one that takes no
 * step while others, and the clock, do; nothing more is needed to model it. An
 * administrator may end the leader's session at any moment, and process ids are
 * reused. A leader writes in three ways:
 *
 *   lease   it asks its clock whether its term is valid, and writes in that very
 *           instant: what IsLeader could promise if nobody were ever frozen
 *           between check and write, and no administrator ended sessions
 *   in tx   Term.InTx: share the guard lock, check, write, commit: four steps
 *   token   the store compares the token in the same step as it writes
 *
 * One that follows may be the deputy: its session holds a seat, and asks for the
 * lock again and again. The server frees the seat as it frees the lock, when the
 * session is idle for too long or ended. A seat decides nothing: the deputy leads
 * only when it was granted the lock, and then it is a leader like any other.
 *
 * When an administrator ends a session, the server first tells its client, and then frees the
 * lock. The leader listens between its statements. Here the word travels in no time: what it
 * needs in truth is for how long two may believe. If the link is cut, the leader does not hear it.
 *
 * What must hold: no write after a later leader has begun (newest > mine), except by the lease
 * of a leader that could not hear that its session was ended.
 *
 * -DNO_BARRIER, -DNO_CHECK, -DNO_START, -DNO_MARGIN, -DNO_TOKEN, -DCHECK_FIRST,
 * -DSEAT_LEADS and -DFREED_FIRST each take one thing away; spin then finds the trace of two writers.
 * scripts/model.sh runs them all, and with TRACE=1 prints what it finds.
 */

#define LEASE 3         /* ticks that the server keeps an idle session, at least */
#define DRIFT 1         /* ticks that a candidate's clock may lose in one lease */
#ifndef TERMS
#define TERMS 3         /* elections, in all */
#endif
#define PIDS  2         /* process ids, reused */

#ifdef NO_MARGIN
#define MARGIN 0
#else
#define MARGIN DRIFT
#endif

#ifdef NO_BARRIER
#define BARRIER true
#else
#define BARRIER (shared == 0)
#endif

#ifdef NO_TOKEN
#define FRESH (token > 0)
#else
#define FRESH (seen <= token)
#endif

#ifdef SEAT_LEADS
#define FREE true                                     /* the seat is taken for the lock */
#else
#define FREE (holder == 0)
#endif

/* The server. */
byte holder;            /* pid of the session that holds the lock; 0: it is free */
byte started;           /* when that session began: no two are the same */
byte owner;             /* whose session it is */
byte idle;              /* ticks since its last statement */
byte shared;            /* fenced transactions in flight: they share the guard lock */
byte starts;            /* sessions so far */
byte seat[2];           /* each candidate's session that holds the deputy's seat, by its start; 0: none */
byte quiet[2];          /* ticks since that session's last statement */

/* The election, as its history will be told. */
byte newest;            /* token of the newest leader that has begun */
byte seen;              /* greatest token that the other store has seen */
byte written;           /* token of the last write there */

/* The candidates. */
byte age[2];            /* ticks since the last answered statement was sent, by their clocks */
byte sent[2];           /* ticks since the heartbeat under way was sent, by their clocks */
byte lost[2];           /* ticks that their clocks have lost since then */
bool told[2];           /* the server has told it that the session of the term is ended */
bool unheard[2];        /* that session is ended, and the link is cut */
byte ending;            /* start of the session that is being ended; 0: none */

#define valid(i)  (age[i] < LEASE - MARGIN)
#define believes(i) (valid(i) && !told[i])
#define mine(s)   (holder != 0 && started == s)

#if defined(NO_CHECK)
#define holds(p, s)  true
#elif defined(NO_START)
#define holds(p, s)  (holder == p)                   /* a reused pid will pass */
#else
#define holds(p, s)  (holder == p && started == s)
#endif

/* Time, and the faults. Ages stop at LEASE, where they make no more difference. */

inline grow(x) { if :: x < LEASE -> x++ :: else fi }

inline advance(i) {
    if :: seat[i] != 0 -> grow(quiet[i]) :: else fi;
    if
    :: lost[i] < DRIFT -> lost[i]++                  /* the clock stands still */
    :: grow(age[i]); grow(sent[i])
    fi
}

active proctype World() {
end:
    do
    :: atomic { idle < LEASE -> idle++; advance(0); advance(1) }
    :: atomic { holder != 0 && idle == LEASE -> holder = 0 }            /* idle_session_timeout */
    :: atomic { holder != 0 && ending == 0 -> ending = started;         /* pg_terminate_backend: */
#ifdef FREED_FIRST
           holder = 0 }
    :: atomic { ending != 0 -> ending = 0; if :: told[owner] = true :: unheard[owner] = true fi }
#else
           if :: told[owner] = true :: unheard[owner] = true fi }       /* the leader is told … */
    :: atomic { ending != 0 -> if :: mine(ending) -> holder = 0 :: else fi; ending = 0 }    /* … then the lock is free */
#endif
    :: atomic { seat[0] != 0 && quiet[0] == LEASE -> seat[0] = 0; quiet[0] = 0 }
    :: atomic { seat[1] != 0 && quiet[1] == LEASE -> seat[1] = 0; quiet[1] = 0 }
    od
}

inline open() {
    if :: backend = 1 :: backend = PIDS fi;
    starts++; start = starts
}

/* The lock is granted to the session; its last statement was sent so many ticks ago. */
inline grant(ago) {
    holder = backend; started = start; owner = i;
    idle = 0; age[i] = ago; sent[i] = 0; lost[i] = 0; told[i] = false; unheard[i] = false
}

proctype Candidate(byte i) {
    byte backend, start, token;

follow:
end:
    if
    :: /* The attempt, on a session with some pid. */
       atomic {
           holder == 0 && starts < TERMS ->
           open();
           grant(0)
       }
    :: /* The lock is busy and the seat is free: the deputy. */
       atomic {
           holder != 0 && seat[0] == 0 && seat[1] == 0 && starts < TERMS ->
           open();
           seat[i] = start; quiet[i] = 0; age[i] = 0; lost[i] = 0
       };
       do
       :: sent[i] = 0;                                /* its question: sent … */
          if
          :: atomic { seat[i] == start && FREE -> seat[i] = 0; quiet[i] = 0; grant(sent[i]); break }
          :: atomic { seat[i] == start && !(FREE) -> quiet[i] = 0; age[i] = sent[i]; lost[i] = 0 }
          :: seat[i] != start -> goto follow          /* its session has ended */
          fi
       :: !valid(i) ->                                /* it stood still: it gives the seat up */
          atomic { if :: seat[i] == start -> seat[i] = 0; quiet[i] = 0 :: else fi };
          goto follow
       od
    fi;
    /* Confirm: the barrier and the token, in one statement. */
    if
    :: atomic { mine(start) && BARRIER -> token = start; newest = token }
    :: !mine(start) -> goto follow
    fi;

    do
    :: sent[i] = 0;                                   /* heartbeat: sent … */
       if
       :: atomic { mine(start) -> idle = 0; age[i] = sent[i]; lost[i] = 0 }   /* … and answered */
       :: !mine(start) -> break
       fi

    :: atomic { believes(i) -> assert(newest == token || unheard[i]) }  /* write, by the lease */

    :: shared++;                                                        /* write, in tx: the guard … */
       if
       :: holds(backend, start) ->                                          /* … the check … */
          if
          :: assert(newest == token)                                    /* … the write, and the commit, */
          :: skip                                                       /* or the server ends it */
          fi
       :: else
       fi;
       shared--

#ifdef CHECK_FIRST
    :: seen <= token -> seen = token; assert(written <= token); written = token
#else
    :: atomic { FRESH -> seen = token; assert(written <= token); written = token }  /* write, by the token */
#endif
    :: !believes(i) -> break                             /* it knows, or will never do anything more */
    :: atomic { mine(start) -> holder = 0; break }       /* Resign */
    od;
    goto follow
}

init { atomic { run Candidate(0); run Candidate(1) } }
