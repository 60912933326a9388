/* generate_tokens.c: the tokens that follow a prompt, the likeliest each time, from a package for text generation.
 *
 *   generate_tokens text.pkg COUNT TOKEN [TOKEN ...]
 *
 * The package has two entry points: prefill(tokens[1, n], start[1]) reads the prompt, decode(tokens[1, 1], start[1])
 * takes one token more; start says how many tokens the cache holds. The cache is the state.
 */
#include <mycc/model.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void die(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  exit(2);
}

static void check(int status) {
  if (status != MYCC_OK) die(mycc_last_error());
}

/* A view of whole numbers: [1, count] with 2 dimensions, [count] with 1. */
static mycc_tensor numbers(int64_t *data, int32_t ndim, int64_t count) {
  mycc_tensor tensor = {.data = data, .device_type = 1, .ndim = ndim, .dtype = {.code = 0, .bits = 64, .lanes = 1}};
  tensor.shape[0] = ndim == 2 ? 1 : count;
  tensor.strides[0] = ndim == 2 ? count : 1;
  if (ndim == 2) tensor.shape[1] = count, tensor.strides[1] = 1;
  return tensor;
}

static int64_t largest(const float *logits, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* Runs an entry point on `count` tokens behind the first `start` ones; the likeliest token that follows. */
static int64_t step(mycc_model *model, int32_t entry, mycc_state *state, int64_t *tokens, int64_t count, int64_t start) {
  int64_t row = 0;
  mycc_tensor inputs[3] = {numbers(tokens, 2, count), numbers(&start, 1, 1), numbers(&row, 1, 1)};
  mycc_tensor logits = {0}; /* data NULL: the runtime allocates */
  mycc_run_options options = {.struct_size = sizeof options, .state = state};
  check(mycc_run_with(model, entry, inputs, mycc_input_count(model, entry), &logits, 1, &options));
  int64_t token = largest((const float *)logits.data, logits.shape[1]);
  mycc_tensor_free(&logits);
  return token;
}

int main(int argc, char **argv) {
  if (argc < 4) die("usage: generate_tokens text.pkg COUNT TOKEN [TOKEN ...]");
  int64_t count = strtoll(argv[2], NULL, 10), filled = argc - 3;
  int64_t *prompt = calloc((size_t)filled, sizeof *prompt);
  if (!prompt) die("out of memory");
  for (int64_t i = 0; i < filled; ++i) prompt[i] = strtoll(argv[3 + i], NULL, 10);

  mycc_model *model;
  check(mycc_load_file(argv[1], NULL, &model));
  int32_t prefill = mycc_entry_find(model, "prefill"), decode = mycc_entry_find(model, "decode");
  if (prefill < 0 || decode < 0) die("the package does not generate text");
  mycc_state *state;
  check(mycc_state_new(model, &state));

  int64_t token = step(model, prefill, state, prompt, filled, 0);
  for (int64_t i = 0; i < count; ++i) {
    printf("%" PRId64 " ", token);
    if (i + 1 < count) token = step(model, decode, state, &token, 1, filled++);
  }
  printf("\n");
  mycc_state_free(state);
  mycc_unload(model);
  free(prompt);
  return 0;
}
