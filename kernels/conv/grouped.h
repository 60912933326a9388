/* Convolutions with few channels in a group, as many as outputs: 2, 4 or 8. Channels-last, float32, fused epilogue.
 *
 * A vector of output channels belongs to several groups. Input j of every group is brought into all lanes of its group
 * by one shuffle of the vector of inputs at the same place, so nothing is multiplied that is not needed. Strips, blocks
 * and runs of pixels are those of conv().
 */
#ifndef MYCC_KERNELS_CONV_GROUPED_H
#define MYCC_KERNELS_CONV_GROUPED_H

#include "machine.h"
#include "kernels/conv/conv.h"

namespace mycc {

#define MYCC_OF_GROUP(l) (l / S * S + J) % W
/* For the channels c .. c + W - 1 at x: input J of each one's group of S. */
template <int S, int J> MYCC_INLINE vf32 group_input(const float *x, int64_t c) {
  if constexpr (S >= W) return splat(x[c / S * S + J]);
  const vf32 v = load(x + c);
#if MYCC_LANES == 16
  return MYCC_SHUFFLE(vf32, v, v, MYCC_OF_GROUP(0), MYCC_OF_GROUP(1), MYCC_OF_GROUP(2), MYCC_OF_GROUP(3),
                      MYCC_OF_GROUP(4), MYCC_OF_GROUP(5), MYCC_OF_GROUP(6), MYCC_OF_GROUP(7), MYCC_OF_GROUP(8),
                      MYCC_OF_GROUP(9), MYCC_OF_GROUP(10), MYCC_OF_GROUP(11), MYCC_OF_GROUP(12), MYCC_OF_GROUP(13),
                      MYCC_OF_GROUP(14), MYCC_OF_GROUP(15));
#elif MYCC_LANES == 8
  return MYCC_SHUFFLE(vf32, v, v, MYCC_OF_GROUP(0), MYCC_OF_GROUP(1), MYCC_OF_GROUP(2), MYCC_OF_GROUP(3),
                      MYCC_OF_GROUP(4), MYCC_OF_GROUP(5), MYCC_OF_GROUP(6), MYCC_OF_GROUP(7));
#else
  return MYCC_SHUFFLE(vf32, v, v, MYCC_OF_GROUP(0), MYCC_OF_GROUP(1), MYCC_OF_GROUP(2), MYCC_OF_GROUP(3));
#endif
}

/* P pixels of a run, the channels c .. c + W - 1: their sums over all taps. */
template <int S, int P> struct GroupedNhwc {
  vf32 sums[P] = {};

  template <int J> MYCC_INLINE void add(const float *x, int64_t pixel, const float *w, int64_t c) {
    if constexpr (J < S) {
      const vf32 weight = load(w + J * kPanel);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sums[p] = fma(group_input<S, J>(x + p * pixel, c), weight, sums[p]);
      add<J + 1>(x, pixel, w, c);
    }
  }
};

/* Where the channels of a block lie for the pixels of a run. */
struct GroupedRun {
  const float *x;      /* first pixel, channel 0 */
  int64_t pixel, channel, channels;
  const int64_t *taps;
  int64_t count, panel_size; /* of taps; floats of 16 channels' weights */
  const float *w;      /* [C / 16][taps][S][16], from the first of those taps on */
  float *sums;         /* [pixels][kGroupedChannels] */
};

template <int S, int P> inline void grouped_nhwc(const GroupedRun &run) {
  for (int64_t i = 0; i < run.channels; i += W) {
    const int64_t c = run.channel + i;
    const float *w = run.w + c / kPanel * run.panel_size + c % kPanel;
    GroupedNhwc<S, P> pixels;
    for (int64_t tap = 0; tap < run.count; ++tap, w += S * kPanel)
      pixels.template add<0>(run.x + run.taps[tap], run.pixel, w, c);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) store(run.sums + p * kGroupedChannels + i, pixels.sums[p]);
  }
}

template <class Epilogue> struct GroupedLoop {
  const mycc_host *host;
  const ConvPlan &plan;
  const Epilogue &epilogue;
  int64_t channel_blocks;

  template <int S> static void pixels(GroupedRun run, int64_t count) {
    for (; count >= 4; count -= 4, run.x += 4 * run.pixel, run.sums += 4 * kGroupedChannels) grouped_nhwc<S, 4>(run);
    if (count == 3) grouped_nhwc<S, 3>(run);
    else if (count == 2) grouped_nhwc<S, 2>(run);
    else if (count == 1) grouped_nhwc<S, 1>(run);
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const GroupedLoop &loop = *(const GroupedLoop *)arg;
    const ConvPlan &plan = loop.plan;
    const ConvArgs &a = plan.args;
    ConvMemory memory;
    if (!memory.take(plan, loop.host, worker)) return;
    alignas(kLineBytes) float sums[kRunPixels * kGroupedChannels];
    GroupedRun run;
    run.pixel = a.stride_w * (plan.taps.strips ? plan.taps.pitch : a.x_w);
    run.panel_size = plan.cut.segments * plan.taps.depth * kPanel;
    run.sums = sums;
    for (int64_t task = begin; task < end; ++task) {
      const ConvBlock block = plan.block(task / loop.channel_blocks);
      memory.hold(plan, block);
      const ConvCut cut = conv_cut_of(plan, block);
      run.channel = task % loop.channel_blocks * kGroupedChannels;
      run.channels = min64(kGroupedChannels, a.out_c - run.channel);
      for (int64_t i = 0; i < memory.spans.count; ++i) {
        const ConvSpan &span = memory.spans.spans[i];
        ConvRun taps = next_run(cut, span.rows, cut.from, cut.to);
        if (a.kernel_d > 1) taps = {cut.from, cut.to}; /* those of a row of each slice do not lie side by side */
        run.taps = memory.taps + taps.from;
        run.count = taps.to - taps.from;
        run.w = a.w + taps.from * plan.taps.depth * kPanel;
        for (int64_t r = 0; r < span.runs; ++r) {
          run.x = (plan.taps.strips ? memory.strip : a.x) + span.x[r];
          if (plan.taps.depth == 2) pixels<2>(run, span.pixels);
          else if (plan.taps.depth == 4) pixels<4>(run, span.pixels);
          else pixels<8>(run, span.pixels);
          for (int64_t p = 0; p < span.pixels; ++p)
            loop.epilogue((int64_t)0, span.m[r] + p, run.channel, sums + p * kGroupedChannels, run.channels);
        }
      }
    }
  }
};

/* args.w: [C / 16][taps][S][16]: for each output its weights of the S inputs of its group. C = in_c = out_c is a
 * multiple of 16, S = C / groups is 2, 4 or 8. */
template <class Epilogue>
inline void conv_grouped(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  if (args.frames() * args.out_h * args.out_w <= 0 || args.out_c <= 0) return;
  const ConvPlan plan(args, host->max_workers);
  GroupedLoop<Epilogue> loop = {host, plan, epilogue, ceil_div(args.out_c, kGroupedChannels)};
  const int64_t tasks = plan.blocks * loop.channel_blocks;
  host->parallel_for(host->ctx, tasks, host->max_workers > 1 ? 1 : tasks, GroupedLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_GROUPED_H */
