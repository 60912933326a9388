// The largest value so far along each row, and at least `start`: demo::running_best(Tensor x, float start) -> Tensor.
#include "mycc/custom.h"

extern "C" void running_best(const mycc_host *host, const mycc_tensor *outputs, const mycc_tensor *inputs,
                             const mycc_number *numbers) {
  const float *x = mycc::data<const float>(inputs[0]);
  float *y = mycc::data<float>(outputs[0]);
  const float start = static_cast<float>(numbers[0].real);
  const int64_t columns = inputs[0].ndim ? inputs[0].shape[inputs[0].ndim - 1] : 1;
  const int64_t rows = columns ? mycc::elements(inputs[0]) / columns : 0;
  mycc::parallel_for(host, rows, 1 + 4096 / (columns + 1), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float best = start;
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        if (x[i] > best || x[i] != x[i]) best = x[i];
        y[i] = best;
      }
    }
  });
}
