#include "scheduler.h"

#include <new>

#include "../base/errors.h"
#include "../cpu/pool.h"

namespace mycc::runtime {
namespace {

constexpr int64_t kMuch = 16384;  // logits of a text from which threads choose the tokens of a step

}  // namespace

Scheduler::~Scheduler() {
  for (Request *request : requests_) free_value(request);
  for (int32_t i = 0; i < threads_; ++i) rooms_[i].~SamplingRoom();
  free(rooms_);
}

int Scheduler::init(mycc_model *model, bool forget) {
  if (int status = program_.init(model)) return status;
  const int32_t threads = program_.threads < program_.texts ? program_.threads : int32_t(program_.texts);
  rooms_ = static_cast<SamplingRoom *>(malloc(size_t(threads) * sizeof(SamplingRoom)));
  if (!rooms_) return out_of_memory(size_t(threads) * sizeof(SamplingRoom));
  for (; threads_ < threads; ++threads_) new (rooms_ + threads_) SamplingRoom;
  forget_ = forget || program_.recurrent || program_.ring;  // states and rings cannot go back
  const bool paged = program_.blocks > 0;
  const bool room = paged ? pool_.init(1, int32_t(program_.blocks), program_.block)  // masked places read block 0
                          : pool_.init(0, int32_t(program_.texts), program_.length);
  return room ? int(MYCC_OK) : out_of_memory(size_t(program_.blocks * program_.block) * sizeof(int64_t));
}

int Scheduler::submit(const mycc_request &given, int64_t *id) {
  if (int status = check(given)) return status;
  Request *request = make_request(given, ids_ + 1);
  if (!request || !requests_.push(request)) {
    free_value(request);
    return out_of_memory(size_t(given.prompt_length) * sizeof(int64_t));
  }
  *id = ++ids_;
  return MYCC_OK;
}

Request *Scheduler::find(int64_t id) const {
  for (Request *request : requests_)
    if (request->id == id) return request;
  fail(MYCC_ERROR_INPUT, "there is no request %lld, or it has ended", (long long)id);
  return nullptr;
}

int Scheduler::cancel(int64_t id) {
  Request *request = find(id);
  if (!request) return MYCC_ERROR_INPUT;
  drop(*request);
  return MYCC_OK;
}

int Scheduler::show_logits(int64_t id, bool shown) {
  Request *request = find(id);
  if (!request) return MYCC_ERROR_INPUT;
  request->shows_logits = shown;
  return MYCC_OK;
}

int Scheduler::choose(int64_t id, int64_t token, int32_t finish, int32_t *ended) {
  Request *request = find(id);
  if (!request) return MYCC_ERROR_INPUT;
  if (request->stage != Stage::asking)
    return fail(MYCC_ERROR_INPUT, "request %lld does not wait for a token", (long long)id);
  if (ended) *ended = finish;
  if (finish != MYCC_GOES_ON) {
    drop(*request);
    return MYCC_OK;
  }
  if (token < 0 || token >= program_.vocabulary)
    return fail(MYCC_ERROR_INPUT, "%lld is no token; they are numbered from 0 to %lld", (long long)token,
                (long long)program_.vocabulary - 1);
  if (!request->tokens.push(token)) return out_of_memory(sizeof(int64_t));
  request->stage = request->blocks.size() ? Stage::running : Stage::waiting;
  const bool full = request->generated() == request->most || int64_t(request->tokens.size()) >= program_.length;
  if (ended && full) *ended = MYCC_FINISH_LENGTH;
  if (full) drop(*request);
  return MYCC_OK;
}

bool Scheduler::busy() const {
  for (const Request *request : requests_)
    if (request->stage != Stage::asking) return true;
  return false;
}

void Scheduler::count(mycc_generator_counts *counts) const {
  counts->running = counts->waiting = 0;
  for (const Request *request : requests_) ++(request->stage == Stage::waiting ? counts->waiting : counts->running);
  counts->blocks = pool_.count(), counts->free_blocks = pool_.free_count();
  counts->block_tokens = int32_t(pool_.tokens());
  counts->preempted = preempted_, counts->read_tokens = read_;
  counts->reused_tokens = reused_, counts->copied_blocks = copied_, counts->calls = program_.calls;
}

// The calls of a step that leave their logits on a device follow each other there without waiting; then come the tokens.
// The launches of a piece, whose sizes may be new, are prepared while the device takes a token more of the others. Where a
// package reads texts of any lengths together, a device takes that token by the same call: its time is that of reading
// the weights.
int Scheduler::step() {
  found_.clear(), awaited_pieces_.clear(), awaited_rows_.clear();
  for (Request *request : requests_) request->waited += request->stage == Stage::waiting;
  if (int status = admit()) return broken(status, nullptr, 0);
  Array<Request *> rows;
  if (int status = rows_of_step(rows)) return status;
  int status = MYCC_OK;
  if (rows.size() && !program_.joins()) status = decode_rows(rows), rows.clear();
  if (!status) status = program_.packs() ? read_packed(rows) : read_pieces();
  const int taken = take_tokens();  // also of the calls before one that found no memory
  return status ? status : taken;
}

// The requests that take a token more, and have the blocks for it. They are as they are before pieces are read.
int Scheduler::rows_of_step(Array<Request *> &rows) {
  Array<Request *> batch;
  for (Request *request : requests_)
    if (request->stage == Stage::running && request->left() == 1 && !batch.push(request))
      return out_of_memory(sizeof(Request *));
  while (batch.size()) {  // first those that are served first: they may take blocks of the others
    size_t first = 0;
    for (size_t i = 1; i < batch.size(); ++i)
      if (batch[i]->before(*batch[first])) first = i;
    Request *request = batch[first];
    batch[first] = batch[batch.size() - 1];
    batch.pop();
    if (request->stage == Stage::running && grow(*request, request->read + 1) && !rows.push(request))
      return out_of_memory(sizeof(Request *));
  }
  return MYCC_OK;
}

int Scheduler::decode_rows(const Array<Request *> &rows) {
  bool kept = program_.chooses();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Request &request = *rows[i];
    kept = kept && on_device(request);
    program_.set(int32_t(i), request.tokens[size_t(request.read)], request.read, request.blocks.begin(),
                 request.blocks.size());
  }
  float *logits = kept ? nullptr : program_.logits_of(true);
  if (!kept && !logits) return out_of_memory(size_t(program_.texts * program_.vocabulary) * sizeof(float));
  for (Request *request : rows)
    if (kept && !awaited_rows_.push(request)) return out_of_memory(sizeof(request));
  if (int status = program_.decode(int32_t(rows.size()), logits)) return broken(status, rows.begin(), rows.size());
  for (Request *request : rows) was_read(*request, 1);
  return kept ? int(MYCC_OK) : take_tokens(rows, logits);
}

// The tokens behind requests, by logits of the host: a row for each of them.
int Scheduler::take_tokens(const Array<Request *> &rows, const float *logits) {
  if (int status = choose_all(rows, logits)) return broken(status, rows.begin(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    if (int status = next_token(*rows[i], logits + i * size_t(program_.vocabulary), chosen_[i]))
      return broken(status, &rows[i], 1);
  return MYCC_OK;
}

// The tokens that the device chooses.
int Scheduler::take_tokens() {
  if (int status = take_tokens(awaited_pieces_, false)) return status;
  return take_tokens(awaited_rows_, true);
}

int Scheduler::take_tokens(const Array<Request *> &requests, bool decoding) {
  if (!requests.size()) return MYCC_OK;
  if (int status = choose_by_device(requests, decoding)) return broken(status, requests.begin(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    if (int status = next_token(*requests[i], nullptr, chosen_[i])) return broken(status, &requests[i], 1);
  return MYCC_OK;
}

// A call of the device for each way in which one of the requests chooses, for all rows.
int Scheduler::choose_by_device(const Array<Request *> &requests, bool decoding) {
  const size_t count = requests.size();
  chosen_.clear(), draws_.clear();
  bool needed[int(Need::all)] = {};
  if (!draws_.reserve(4 * count)) return out_of_memory(4 * count * sizeof(double));
  const DrawRows rows = {draws_.begin(), draws_.begin() + count, draws_.begin() + 2 * count, draws_.begin() + 3 * count};
  for (size_t i = 0; i < count; ++i) {
    const Sampler &sampler = requests[i]->sampler;
    const Need need = need_of(*requests[i]);
    needed[int(need)] = true;
    const bool drawn = need == Need::draw || need == Need::nucleus;
    rows.temperatures[i] = drawn ? sampler.temperature() : 1, rows.parts[i] = drawn ? sampler.part() : 0;
    rows.top_p[i] = drawn ? sampler.top_p() : 1, rows.min_p[i] = drawn ? sampler.min_p() : 0;
    if (!chosen_.push(kNotChosen)) return out_of_memory(sizeof(int64_t));
  }
  constexpr Need kWays[] = {Need::likeliest, Need::draw, Need::nucleus};
  for (Need need : kWays) {
    if (!needed[int(need)]) continue;
    const int64_t *tokens;
    if (int status = need == Need::likeliest
                         ? program_.likeliest(decoding, int64_t(count), &tokens)
                         : program_.draw(decoding, int64_t(count), need == Need::nucleus, rows, &tokens))
      return status;
    for (size_t i = 0; i < count; ++i) {
      if (need_of(*requests[i]) != need || tokens[i] < 0) continue;
      chosen_[i] = tokens[i];
      if (need != Need::likeliest) requests[i]->sampler.drawn();
    }
  }
  if (needed[int(Need::candidates)])
    if (int status = choose_of_candidates(requests, decoding)) return status;
  for (size_t i = 0; i < count; ++i)
    if (chosen_[i] == kNotChosen)
      if (int status = choose_by_host(*requests[i], decoding, int64_t(i))) return status;
  return MYCC_OK;
}

int Scheduler::choose_of_candidates(const Array<Request *> &requests, bool decoding) {
  CandidateRows found;
  if (int status = program_.find_candidates(decoding, int64_t(requests.size()), &found)) return status;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (need_of(*requests[i]) != Need::candidates) continue;
    const size_t at = i * size_t(found.stride);
    const int64_t token = requests[i]->sampler.choose_of(found.logits + at, found.tokens + at, rooms_[0]);
    if (token >= 0) chosen_[i] = token;
  }
  return MYCC_OK;
}

// By the logits of one row, where what the device gave was not enough.
int Scheduler::choose_by_host(Request &request, bool decoding, int64_t row) {
  float *logits = program_.logits_of(decoding);
  if (!logits) return out_of_memory(size_t(program_.texts * program_.vocabulary) * sizeof(float));
  if (int status = program_.fetch(decoding, row, logits)) return status;
  chosen_[size_t(row)] = request.sampler.choose(logits, program_.vocabulary, rooms_[0]);
  return chosen_[size_t(row)] < 0 ? out_of_memory(size_t(program_.vocabulary) * 20) : int(MYCC_OK);
}

void Scheduler::note_reused(Request &request, int64_t tokens) {
  reused_ += tokens;
  if (request.generated() == 0) request.reused += int32_t(tokens);
}

void Scheduler::was_read(Request &request, int64_t count) {
  request.read += count;
  know_blocks(request);
}

// The tokens behind several texts, side by side where there is much to look at.
int Scheduler::choose_all(const Array<Request *> &rows, const float *logits) {
  struct Work {
    Request *const *rows;
    const float *logits;
    int64_t vocabulary;
    SamplingRoom *rooms;
    int64_t *tokens;
  };
  chosen_.clear();
  for (size_t i = 0; i < rows.size(); ++i)
    if (!chosen_.push(kNotChosen)) return out_of_memory(sizeof(int64_t));
  if (rows.size() < 2 || threads_ < 2 || program_.vocabulary < kMuch) return MYCC_OK;
  Work work = {rows.begin(), logits, program_.vocabulary, rooms_, chosen_.begin()};
  CallInFlight call(threads_);
  call.parallel_for(
      int64_t(rows.size()), 1,
      [](void *given, int64_t begin, int64_t end, int32_t worker) {
        const Work &all = *static_cast<Work *>(given);
        for (int64_t i = begin; i < end; ++i) {
          const float *own = all.logits + i * all.vocabulary;
          Request &request = *all.rows[i];
          if (!request.by_caller) all.tokens[i] = request.sampler.choose(own, all.vocabulary, all.rooms[worker]);
        }
      },
      &work);
  return MYCC_OK;
}

// Takes the token behind all that have been read, chooses it, or asks the caller to. token: of choose_all().
int Scheduler::next_token(Request &request, const float *logits, int64_t token) {
  const int32_t reused = request.generated() == 0 ? request.reused : 0;
  if (request.by_caller) {
    request.stage = Stage::asking;
    return found_.push({request.id, -1, MYCC_GOES_ON, reused, logits}) ? int(MYCC_OK) : out_of_memory(sizeof(mycc_token));
  }
  if (token == kNotChosen) token = request.sampler.choose(logits, program_.vocabulary, rooms_[0]);
  if (token < 0) return out_of_memory(size_t(program_.vocabulary) * 20);
  int32_t finish = MYCC_GOES_ON;
  for (int64_t stop : request.stops)
    if (stop == token) finish = MYCC_FINISH_STOP;
  if (finish == MYCC_GOES_ON) {
    if (!request.tokens.push(token) || !request.sampler.note(token)) return out_of_memory(sizeof(int64_t));
    if (request.generated() == request.most || int64_t(request.tokens.size()) >= program_.length)
      finish = MYCC_FINISH_LENGTH;
  }
  const mycc_token told = {request.id, finish == MYCC_FINISH_STOP ? -1 : token, finish, reused, logits};
  if (!found_.push(told)) return out_of_memory(sizeof(mycc_token));  // the caller still has the request
  if (finish != MYCC_GOES_ON) drop(request);
  return MYCC_OK;
}

// Ends a request, and gives back what it has.
void Scheduler::drop(Request &request) {
  give_back(request);
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != &request) requests_[kept++] = requests_[i];
  requests_.pop();
  free_value(&request);
}

// A call failed: what the cache holds is worth nothing. The requests of the call end; the others are read again.
int Scheduler::broken(int status, Request *const *of_call, size_t count) {
  broken_ = true;
  awaited_pieces_.clear(), awaited_rows_.clear();  // they are read again
  for (Request *request : requests_)
    if (request->blocks.size()) preempt(*request);
  pool_.forget_all();
  for (size_t i = 0; i < count; ++i) {
    found_.push({of_call[i]->id, -1, MYCC_FINISH_ERROR, 0, nullptr});
    drop(*of_call[i]);
  }
  broken_ = false;
  if (status != MYCC_ERROR_INPUT) return status;
  Line text;  // not the caller's doing
  text.add("%s", last_error());
  return fail(MYCC_ERROR_RUN, "%s", text.text());
}

}  // namespace mycc::runtime
