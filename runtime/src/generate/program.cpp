#include "program.h"

#include <stdlib.h>

#include "../base/errors.h"
#include "../call/tensor.h"
#include "../package/loaded.h"

namespace mycc::runtime {
namespace {

mycc_tensor doubles(double *data, int64_t count) {
  mycc_tensor made = numbers(reinterpret_cast<int64_t *>(data), count, -1);
  made.dtype = {2, 64, 1};
  return made;
}

mycc_tensor pinned(mycc_tensor output) {
  output.device_type = kPinnedCuda;
  return output;
}

// A whole number of the manifest's row on text generation; `none` where it is missing.
int64_t fact(const Json &json, const JsonValue *task, const char *name, int64_t none) {
  const JsonValue *value = json.get(task, name);
  const bool known = value && (value->kind == JsonKind::integer || value->kind == JsonKind::boolean);
  return known ? value->integer : none;
}

}  // namespace

TextProgram::~TextProgram() {
  for (float *memory : logits_) {
    if (memory && model_->gpu)
      gpu_release_host_memory(*model_->gpu, memory);
    else
      free(memory);
  }
  device_.release();
  mycc_state_free(state_);  // which keeps the model
}

int TextProgram::init(mycc_model *model) {
  model_ = model;
  int64_t tile;
  {
    const ModelUse use(model);
    if (!use) return use.status();
    const JsonValue *task = model->json.get(&model->json.root(), "task");
    const JsonValue *name = task ? model->json.get(task, "name") : nullptr;
    if (!name || !(name->text == "text-generation"))
      return fail(MYCC_ERROR_INPUT,
                  "%s was not compiled for text generation\n"
                  "  Compile a model's folder: mycc compile DIR --task text-generation --out text.pkg",
                  model->manifest.name);
    const auto number = [model, task](const char *key, int64_t none) { return fact(model->json, task, key, none); };
    length = number("length", 0), texts = number("texts", 0), chunk = number("chunk", 0);
    vocabulary = number("vocabulary", 0), recurrent = number("recurrent", 0) != 0;
    ring = number("back", -1) >= 0, threads = model->threads;
    block = number("block", 0), blocks = number("blocks", 0), tile = number("tile", 0);
    candidates = number("candidates", 0), short_chunk = number("short", 1);
  }
  prefill_ = mycc_entry_find(model, "prefill"), decode_ = mycc_entry_find(model, "decode");
  copy_ = mycc_entry_find(model, "copy"), short_ = mycc_entry_find(model, "prefill_short");
  if (short_ < 0 || short_chunk < 1) short_chunk = 1;
  const bool whole = length > 1 && texts > 0 && chunk > 0 && vocabulary > 0 && prefill_ >= 0 && decode_ >= 0 &&
                     texts < 1 << 20 && (!blocks || (block > 0 && blocks > columns() && blocks < 1 << 30 && copy_ >= 0));
  if (!whole) return fail(MYCC_ERROR_LOAD, "what the package says of its text generation is not whole");
  if (names_rows() && !recurrent)
    return fail(MYCC_ERROR_LOAD, "the package has a row of the cache for each text, which the scheduler does not serve\n"
                                 "  Compile it again without --draft-tokens.");
  tokens_ = region_.array<int64_t>(size_t(texts)), start_ = region_.array<int64_t>(size_t(texts));
  table_ = region_.array<int64_t>(size_t(texts * columns()));
  if (!tokens_ || !start_ || !table_) return out_of_memory(size_t(texts * columns()) * sizeof(int64_t));
  if (tile > 0 && blocks) {
    read_ = mycc_entry_find(model, "read"), on_device_ = model->gpu != nullptr;
    if (packs() && !packed_.init(texts, chunk + texts, tile, columns()))
      return out_of_memory(size_t((chunk / tile + texts) * columns()) * sizeof(int64_t));
  }
  if (model->gpu) {
    argmax_ = mycc_entry_find(model, "argmax");  // packages of earlier versions have none
    draw_ = mycc_entry_find(model, "draw"), candidates_ = mycc_entry_find(model, "candidates");
    nucleus_ = mycc_entry_find(model, "draw_nucleus");
    if (!chooses() || draw_ < 0 || nucleus_ < 0 || candidates_ < 0) candidates = 0;
    if (int status = device_.init(*model->gpu, texts, vocabulary, chooses(), candidates)) return status;
  }
  return mycc_state_new(model, &state_);
}

float *TextProgram::logits_of(bool decoding) {
  float *&memory = logits_[decoding];
  const size_t bytes = size_t(texts * vocabulary) * sizeof(float);
  if (!memory) memory = static_cast<float *>(model_->gpu ? gpu_host_memory(*model_->gpu, bytes) : malloc(bytes));
  return memory;
}

void TextProgram::set(int32_t text, int64_t token, int64_t start, const int32_t *blocks_of, size_t n_blocks) {
  tokens_[text] = token, start_[text] = start;
  for (int64_t i = 0; i < columns(); ++i) table_[text * columns() + i] = size_t(i) < n_blocks ? blocks_of[i] : 0;
}

int TextProgram::read(const int64_t *tokens, int64_t count, int64_t start, const int32_t *blocks_of, size_t n_blocks,
                      float *logits, int64_t piece) {
  set(0, tokens[0], start, blocks_of, n_blocks);
  const bool part = recurrent && count < chunk;
  const int32_t entry = !part ? prefill_ : count == 1 ? decode_ : short_;
  return call(entry, tokens, 1, count, logits, chooses() ? device_.piece(piece) : nullptr);
}

int TextProgram::decode(int32_t rows, float *logits) {
  return call(decode_, tokens_, rows, 1, logits, chooses() ? device_.step() : nullptr);
}

// kept: where logits stay on the device, if `logits` is NULL.
int TextProgram::call(int32_t entry, const int64_t *tokens, int64_t rows, int64_t count, float *logits, float *kept) {
  const mycc_tensor inputs[] = {numbers(const_cast<int64_t *>(tokens), rows, count), numbers(start_, rows, -1),
                                numbers(table_, rows, blocks ? columns() : -1)};
  const int32_t host = model_->gpu ? kPinnedCuda : kCpu;
  mycc_tensor output = logits_tensor(logits ? logits : kept, rows, logits ? host : kCuda);
  return run(entry, inputs, columns() ? 3 : 2, &output);
}

int TextProgram::read_packed(float *logits) {
  mycc_tensor inputs[PackedTokens::kInputs];
  const int64_t rows = packed_.inputs(inputs);
  const int32_t host = model_->gpu ? kPinnedCuda : kCpu;
  float *const kept = logits ? logits : device_.step();
  mycc_tensor output = logits_tensor(kept, rows, logits ? host : kCuda);
  return run(read_, inputs, PackedTokens::kInputs, &output);
}

template <class Choose>
int TextProgram::for_rows(bool decoding, int64_t count, const Choose &choose) {
  if (decoding || device_.dense()) return choose(decoding ? device_.step() : device_.piece(0), int64_t(0), count);
  int status = MYCC_OK;
  for (int64_t i = 0; i < count && status == MYCC_OK; ++i) status = choose(device_.piece(i), i, int64_t(1));
  return status;
}

int TextProgram::likeliest(bool decoding, int64_t count, const int64_t **tokens) {
  *tokens = device_.tokens();
  return for_rows(decoding, count, [this](float *logits, int64_t first, int64_t rows) {
    const mycc_tensor input = logits_tensor(logits, rows, kCuda);
    mycc_tensor output = pinned(numbers(device_.tokens() + first, rows, -1));
    return run(argmax_, &input, 1, &output);
  });
}

int TextProgram::draw(bool decoding, int64_t count, bool nucleus, const DrawRows &given, const int64_t **tokens) {
  *tokens = device_.tokens();
  return for_rows(decoding, count, [&](float *logits, int64_t first, int64_t rows) {
    const mycc_tensor inputs[] = {logits_tensor(logits, rows, kCuda), doubles(given.temperatures + first, rows),
                                  doubles(given.parts + first, rows), doubles(given.top_p + first, rows),
                                  doubles(given.min_p + first, rows)};
    mycc_tensor output = pinned(numbers(device_.tokens() + first, rows, -1));
    return run(nucleus ? nucleus_ : draw_, inputs, nucleus ? 5 : 3, &output);
  });
}

int TextProgram::find_candidates(bool decoding, int64_t count, CandidateRows *found) {
  *found = {device_.values(), device_.candidates(), candidates};
  return for_rows(decoding, count, [&](float *logits, int64_t first, int64_t rows) {
    const mycc_tensor input = logits_tensor(logits, rows, kCuda);
    mycc_tensor values = pinned(numbers(nullptr, rows, candidates));
    values.data = device_.values() + first * candidates, values.dtype = {2, 32, 1};
    mycc_tensor outputs[] = {values, pinned(numbers(device_.candidates() + first * candidates, rows, candidates))};
    return run(candidates_, &input, 1, outputs, 2);
  });
}

int TextProgram::copy(int32_t source, int32_t target) {
  int64_t places[] = {source, target}, done = 0;
  const mycc_tensor inputs[] = {numbers(places, 1, -1), numbers(places + 1, 1, -1)};
  mycc_tensor output = numbers(&done, 1, -1);
  return run(copy_, inputs, 2, &output);
}

mycc_tensor TextProgram::logits_tensor(float *logits, int64_t rows, int32_t device_type) const {
  mycc_tensor made = {};
  made.data = logits, made.device_type = device_type, made.device_id = device_type == kCuda ? device_.device() : 0;
  made.ndim = 2, made.dtype = {2, 32, 1};
  made.shape[0] = rows, made.shape[1] = vocabulary, made.strides[0] = vocabulary, made.strides[1] = 1;
  return made;
}

int TextProgram::run(int32_t entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs,
                     int32_t n_outputs) {
  const bool chooses = entry == argmax_ || entry == draw_ || entry == nucleus_ || entry == candidates_;
  mycc_run_options options = {};
  options.struct_size = sizeof options, options.state = chooses ? nullptr : state_;
  calls += !chooses && entry != copy_;
  options.has_stream = model_->gpu != nullptr, options.stream = device_.stream();
  return mycc_run_with(model_, entry, inputs, n_inputs, outputs, n_outputs, &options);
}

}  // namespace mycc::runtime
