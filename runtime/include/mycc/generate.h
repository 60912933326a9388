/* generate.h: text generation with a package that was compiled for it, over numbers of tokens: many requests at once share
 * one model and one cache. Plain C11, no dependency beyond libmycc.so.
 *
 *   mycc_generator *g;
 *   if (mycc_generator_new(model, NULL, &g) != MYCC_OK) { puts(mycc_last_error()); return 1; }
 *   mycc_request request = {sizeof request};
 *   request.prompt = tokens, request.prompt_length = count, request.max_new_tokens = 100;
 *   int64_t id;
 *   if (mycc_generator_submit(g, &request, &id) != MYCC_OK) ...
 *   while (mycc_generator_busy(g)) {
 *     const mycc_token *found;
 *     int32_t n;
 *     if (mycc_generator_step(g, &found, &n) != MYCC_OK) ...
 *     for (int32_t i = 0; i < n; ++i) printf("%lld: %lld\n", (long long)found[i].request, (long long)found[i].token);
 *   }
 *   mycc_generator_free(g);
 *
 * A step reads one piece of prompts, if some wait, and takes one token more of every request that has been read; what it
 * reads of several prompts is one call, and on a GPU the tokens more are of the same call. The
 * cache is in blocks of a few tokens, which requests take as they grow and share where they begin alike. Where no block
 * is left, the request that came last gives its blocks back and waits; its tokens are read again later, and it goes on
 * as if nothing had been. Of requests of one priority the first to come is the first to be served, and none waits for
 * ever: every 256 steps that a request waits count as one step of priority.
 *
 * The functions are thread safe; those of one generator wait for each other. They return a code of enum mycc_status and
 * leave the text of a failure in mycc_last_error() of the calling thread.
 */
#ifndef MYCC_GENERATE_H
#define MYCC_GENERATE_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mycc_generator mycc_generator;

typedef struct mycc_generator_options {
  uint32_t struct_size;   /* sizeof(mycc_generator_options) */
  int32_t forget;         /* 1: a request takes over nothing of what others left in the cache */
} mycc_generator_options;

/* Why a request ended. */
enum mycc_finish {
  MYCC_GOES_ON = 0,
  MYCC_FINISH_STOP = 1,      /* one of its stop tokens was chosen */
  MYCC_FINISH_LENGTH = 2,    /* max_new_tokens, or what the package holds of one text */
  MYCC_FINISH_CANCELLED = 3,
  MYCC_FINISH_ERROR = 4      /* a call of the model failed; the step said why */
};

/* How tokens are chosen. All zeros: always the likeliest one. */
typedef struct mycc_sampling {
  uint32_t struct_size;        /* sizeof(mycc_sampling), or 0: all of them are zero */
  int32_t has_seed;            /* 1: the same seed draws the same tokens; 0: another one each time */
  uint64_t seed;
  double temperature;          /* divides the logits; 0: always the likeliest token */
  int64_t top_k;               /* only the k likeliest tokens; 0: all */
  double top_p;                /* the fewest tokens whose probabilities add up to it; 0 or 1: all */
  double min_p;                /* only tokens at least so many times as probable as the likeliest; 0: all */
  double repetition_penalty;   /* divides the logits of tokens that the request holds (negative ones are multiplied);
                                  0 or 1: none */
  double presence_penalty;     /* taken from the logits of tokens that were generated, */
  double frequency_penalty;    /* and once for each time that they were */
  const int64_t *bias_tokens;  /* tokens to whose logits something is added, */
  const float *bias;           /* and what */
  int64_t n_bias;
} mycc_sampling;

typedef struct mycc_request {
  uint32_t struct_size;        /* sizeof(mycc_request) */
  int32_t priority;            /* higher ones come first */
  const int64_t *prompt;       /* at least one token, and fewer than the package holds of one text */
  int64_t prompt_length;
  int64_t max_new_tokens;      /* 0: until it stops or the package holds no more */
  const int64_t *stop_tokens;  /* tokens that end it; none of them is given out */
  int64_t n_stop_tokens;
  mycc_sampling sampling;
  int32_t chosen_by_caller;    /* 1: each token is chosen by the caller, who says it by mycc_generator_choose() */
} mycc_request;

/* What a step made of a request. */
typedef struct mycc_token {
  int64_t request;
  int64_t token;          /* -1: none, as it ended or the caller chooses */
  int32_t finish;         /* of enum mycc_finish */
  int32_t reused;         /* tokens of the prompt that were found in the cache; 0 behind the first token */
  const float *logits;    /* of all tokens of the vocabulary, as the model gave them; NULL where none were needed */
} mycc_token;

/* model: of a package that was compiled for text generation. The generator keeps what it needs of it. */
MYCC_API int mycc_generator_new(mycc_model *model, const mycc_generator_options *options, mycc_generator **generator);
MYCC_API void mycc_generator_free(mycc_generator *generator);

/* MYCC_ERROR_INPUT: the request cannot be served. */
MYCC_API int mycc_generator_check(mycc_generator *generator, const mycc_request *request);
/* Lets a request in; what it points to is copied. MYCC_ERROR_INPUT: it cannot be served, and was not let in. */
MYCC_API int mycc_generator_submit(mycc_generator *generator, const mycc_request *request, int64_t *id);
/* Ends a request. Nothing more is said of it. MYCC_ERROR_INPUT: there is none of this number, or it has ended. */
MYCC_API int mycc_generator_cancel(mycc_generator *generator, int64_t id);
/* Whether the tokens of a request come with their logits; 1 until it is said otherwise. Without them a GPU chooses the
 * likeliest token itself, and the logits of all tokens need not be copied to the host.
 * MYCC_ERROR_INPUT: there is none of this number, or it has ended. */
MYCC_API int mycc_generator_show_logits(mycc_generator *generator, int64_t id, int32_t shown);
/* The token of a request whose tokens the caller chooses; finish: MYCC_GOES_ON, or why the request ends without it. A token
 * that fills max_new_tokens ends the request: *ended is MYCC_FINISH_LENGTH then. ended may be NULL. */
MYCC_API int mycc_generator_choose(mycc_generator *generator, int64_t id, int64_t token, int32_t finish, int32_t *ended);
/* One step. *tokens stays until the next call with this generator that changes it. After MYCC_ERROR_RUN *tokens says which
 * requests ended by it; the others go on. */
MYCC_API int mycc_generator_step(mycc_generator *generator, const mycc_token **tokens, int32_t *count);
/* Whether a step would do something: not when all requests have ended or wait for tokens of the caller. */
MYCC_API int32_t mycc_generator_busy(mycc_generator *generator);

typedef struct mycc_generator_counts {
  uint32_t struct_size;      /* sizeof(mycc_generator_counts); that of earlier versions, which ends before `calls`, is
                                taken too */
  int32_t running, waiting;  /* requests */
  int32_t blocks, free_blocks; /* of the cache; those that only later prompts may find again are free */
  int32_t block_tokens;      /* tokens of a block */
  int64_t preempted;         /* how often a request had to give its blocks back */
  int64_t read_tokens;       /* tokens that prompts were read by calls, */
  int64_t reused_tokens;     /* and those found in the cache instead */
  int64_t copied_blocks;     /* blocks that a request copied, as it went on otherwise than another one */
  int64_t calls;             /* of the model, which read tokens or took one more */
} mycc_generator_counts;

MYCC_API int mycc_generator_count(mycc_generator *generator, mycc_generator_counts *counts);

#ifdef __cplusplus
}
#endif
#endif /* MYCC_GENERATE_H */
