/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Vectors of caches and of tensors, which a work-group copies or converts from type to type. Element types
 * are arguments, so that one program serves all caches.
 */
#ifndef HEAD_DIM

struct vector {
    __global uchar *at;
    __global uchar *rest; /* elements from `split` on */
    int split;
    uint dtype;
    int x, x_stride; /* as in arguments.h */
    float scale;
    __global float *own; /* where the vector's own scale is, or NULL */
};

INLINE struct vector vector_of(__global uchar *at, uint dtype)
{
    struct vector v;

    v.at = v.rest = at;
    v.split = INT_MAX;
    v.dtype = dtype;
    v.x = v.x_stride = 0;
    v.scale = 1;
    v.own = 0;
    return v;
}

INLINE __global uchar *element_of(const struct vector *v, int d)
{
    const int size = SIZE(v->dtype);

    return d < v->split ? v->at + column_at(v->x, v->x_stride, d * size) : v->rest + (d - v->split) * size;
}

INLINE float value_of(const struct vector *v, int d)
{
    return load_element(v->dtype, element_of(v, d)) * v->scale;
}

/* max|x| of this work-item's elements; as integers, floats >= 0 keep their order, and NaN is above all. */
INLINE uint largest_bits(const struct vector *v, int dim)
{
    uint max = 0;

    for (int d = (int)get_local_id(0); d < dim; d += OPENCL_ITEMS) {
        const uint bits = as_uint(value_of(v, d)) & 0x7fffffffu;
        max = bits > max ? bits : max;
    }
    return max;
}

/* The scale that a vector gets: max|x| / Q, NaN if there is a NaN or an infinity, 1 if it is too small for
 * one. */
INLINE float scale_of(uint dtype, __local const uint *most)
{
    const float q = dtype == OPENCL_INT8 ? 127.0f : decode8(dtype, (uchar)largest_of(dtype));
    uint max = 0;

    for (int i = 0; i < OPENCL_ITEMS; i++)
        max = most[i] > max ? most[i] : max;
    if (max >= 0x7f800000u)
        return NAN;
    const float own = as_float(max) / q;
    return own < 0x1p-126f ? 1.0f : own;
}

/* Copies elements as they are. */
INLINE void copy_vector(const struct vector *from, const struct vector *to, int dim)
{
    for (int d = (int)get_local_id(0); d < dim; d += OPENCL_ITEMS) {
        __global const uchar *source = element_of(from, d);
        __global uchar *target = element_of(to, d);
        switch (SIZE(from->dtype)) {
        case 4:
            *(__global uint *)target = *(__global const uint *)source;
            break;
        case 2:
            *(__global ushort *)target = *(__global const ushort *)source;
            break;
        default:
            *target = *source;
        }
    }
}

/* Converts a vector, whose own scale comes from the max|x| of all work-items. */
INLINE void convert_vector(const struct vector *from, const struct vector *to, int dim,
                           __local const uint *most)
{
    const float scale = to->own ? scale_of(to->dtype, most) : to->scale;

    if (to->own && get_local_id(0) == 0)
        *to->own = scale;
    for (int d = (int)get_local_id(0); d < dim; d += OPENCL_ITEMS)
        store_element(to->dtype, element_of(to, d), value_of(from, d) / scale);
}

#endif
