/* generate_tokens.c: the tokens that follow some prompts, all at once, from a package for text generation.
 *
 *   generate_tokens text.pkg COUNT TOKEN [TOKEN ...] [/ TOKEN [TOKEN ...]] ...
 *
 * Prompts stand between slashes. Prints a line for each: the likeliest token each time. SEED and TEMPERATURE in the
 * environment have tokens drawn instead.
 */
#include <mycc/generate.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* prompts */

static void die(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  exit(2);
}

static void check(int status) {
  if (status != MYCC_OK) die(mycc_last_error());
}

int main(int argc, char **argv) {
  if (argc < 4) die("usage: generate_tokens text.pkg COUNT TOKEN [TOKEN ...] [/ TOKEN [TOKEN ...]] ...");
  mycc_model *model;
  check(mycc_load_file(argv[1], NULL, &model));
  mycc_generator *generator;
  check(mycc_generator_new(model, NULL, &generator));

  const char *seed = getenv("SEED"), *temperature = getenv("TEMPERATURE");
  int64_t count = strtoll(argv[2], NULL, 10), *prompt = calloc((size_t)argc, sizeof *prompt);
  int64_t *lines[MOST], ids[MOST], written[MOST] = {0};
  int texts = 0;
  if (count < 1 || !prompt) die("COUNT has to be a number from 1");
  for (int at = 3; at < argc; ++at, ++texts) {
    if (texts == MOST) die("too many prompts");
    mycc_request request = {.struct_size = sizeof request, .prompt = prompt, .max_new_tokens = count};
    request.sampling.struct_size = sizeof request.sampling;
    request.sampling.has_seed = seed != NULL;
    request.sampling.seed = seed ? strtoull(seed, NULL, 10) : 0;
    request.sampling.temperature = temperature ? strtod(temperature, NULL) : 0;
    for (; at < argc && strcmp(argv[at], "/") != 0; ++at) prompt[request.prompt_length++] = strtoll(argv[at], NULL, 10);
    check(mycc_generator_submit(generator, &request, &ids[texts]));
    lines[texts] = calloc((size_t)count, sizeof(int64_t));
    if (!lines[texts]) die("out of memory");
  }

  while (mycc_generator_busy(generator)) {
    const mycc_token *found;
    int32_t n;
    check(mycc_generator_step(generator, &found, &n));
    for (int32_t i = 0; i < n; ++i)
      for (int text = 0; text < texts; ++text)
        if (found[i].request == ids[text] && found[i].token >= 0) lines[text][written[text]++] = found[i].token;
  }

  for (int text = 0; text < texts; ++text) {
    for (int64_t i = 0; i < written[text]; ++i) printf("%" PRId64 " ", lines[text][i]);
    printf("\n");
    free(lines[text]);
  }
  mycc_generator_free(generator);
  mycc_unload(model);
  free(prompt);
  return 0;
}
