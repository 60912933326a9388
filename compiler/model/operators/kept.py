"""Which operators the lowering takes whole; all others are decomposed where a decomposition is known."""

from __future__ import annotations

from collections.abc import Iterable

#: overloads that the user registered a lowering or a kernel for (lower/core/custom.py)
CUSTOM: set[str] = set()

_POINTWISE = """
abs neg sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin acos atan sinh
cosh tanh asinh acosh atanh erf erfc lgamma ceil floor round trunc frac relu relu6 sigmoid hardtanh clamp clamp_min
clamp_max clip gelu silu leaky_relu elu celu selu hardswish hardsigmoid softplus mish log_sigmoid threshold prelu
isnan isinf isfinite positive nan_to_num logical_not bitwise_not add sub rsub mul div true_divide pow maximum
minimum fmax fmin remainder fmod floor_divide atan2 copysign hypot bitwise_and bitwise_or bitwise_xor __and__ __or__
bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ logical_and logical_or logical_xor eq ne lt le gt ge where
masked_fill
addcmul addcdiv lerp softshrink logit _to_copy
"""
_VIEWS = """
view reshape permute transpose t expand squeeze unsqueeze slice select split split_with_sizes chunk unbind
tensor_split repeat narrow unflatten flatten
"""
_CREATION = """
full zeros ones full_like zeros_like ones_like new_full new_zeros new_ones arange scalar_tensor empty empty_like
new_empty eye
"""
_REDUCTIONS = """
sum mean amax amin max min argmax argmin prod any all var std var_mean softmax _softmax log_softmax _log_softmax
logsumexp
"""
_WHOLE = """
layer_norm native_layer_norm rms_norm group_norm batch_norm _native_batch_norm_legit_no_training linear addmm mm bmm
matmul baddbmm scaled_dot_product_attention conv1d conv2d convolution max_pool2d avg_pool2d adaptive_avg_pool2d
_adaptive_avg_pool2d max_pool1d avg_pool1d embedding index_select gather index cat stack constant_pad_nd pad roll
flip tril triu pixel_shuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d sym_size _int_mm
"""

_ORDERED = """
cumsum cumprod cummax cummin logcumsumexp
scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce index_put _unsafe_index_put put
sort argsort topk kthvalue median nanmedian mode aten.searchsorted.Tensor
"""

_DATA_SIZES = """
nonzero argwhere nonzero_numpy aten.where.default masked_select _unique2 unique_consecutive unique_dim
unique_dim_consecutive bincount aten.repeat_interleave.Tensor aten.repeat_interleave.self_Tensor item
_local_scalar_dense
"""
_RANDOM = """
rand rand_like randn randn_like randint randint_like normal bernoulli multinomial uniform exponential cauchy geometric
log_normal normal_functional random randperm dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout
rrelu_with_noise_functional
"""
_STRIDED = "as_strided as_strided_copy as_strided_scatter unfold"
_WINDOWS = """
max_pool2d_with_indices max_pool3d_with_indices max_pool3d avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
_adaptive_avg_pool3d adaptive_avg_pool3d
"""
_LINALG = """
linalg_lu_factor_ex linalg_solve_triangular linalg_cholesky_ex geqrf linalg_householder_product _linalg_eigh
_linalg_svd linalg_matrix_exp lu_unpack linalg_ldl_factor_ex linalg_ldl_solve
"""
_SPECIAL = """
digamma erfinv i0 special_ndtri special_erfcx special_i0e special_i1 special_i1e special_modified_bessel_i0
special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0
special_scaled_modified_bessel_k1 special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
special_spherical_bessel_j0 special_airy_ai igamma igammac special_zeta polygamma nextafter frexp angle signbit gcd lcm
special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h
special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p
"""

#: operators by name without overload
KEPT = frozenset(
    " ".join(
        (
            _POINTWISE,
            _VIEWS,
            _CREATION,
            _REDUCTIONS,
            _WHOLE,
            _ORDERED,
            _DATA_SIZES,
            _RANDOM,
            _STRIDED,
            _WINDOWS,
            _LINALG,
            _SPECIAL,
        )
    ).split()
)

#: layers that a CPU runs as loops over their steps; for a GPU (a row of launches) the steps are unrolled
RECURRENT = ("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")

#: attention that keeps what its gradient needs, and the gradient: a CPU has kernels for both
ATTENTION_STEPS = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)


#: the gradient of a convolution's weight, which a GPU has a kernel for; a CPU has products
CONVOLUTION_STEPS = ("mycc.conv_weight_gradient.default",)


def kept_for(families: Iterable[str]) -> frozenset[str]:
    """What stays whole for targets of these families."""
    found = set(families)
    if found == {"cpu"}:
        return KEPT | {*RECURRENT, *ATTENTION_STEPS}
    return KEPT | {*CONVOLUTION_STEPS} if found == {"cuda"} else KEPT
