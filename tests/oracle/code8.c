/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The five 8-bit types: reading, writing, scales of a token and head. Section 2 of docs/definition.md. */
#include "oracle.h"

#include <math.h>

/* A row of the table of types. */
struct format {
    uint32_t dtype;
    int digits; /* of the significand, the hidden one included */
    int bias;
    double most;
    bool fnuz; /* one NaN, 80; no -0 */
};

static const struct format formats[] = {{ATTN_E4M3, 4, 7, 448, false},
                                        {ATTN_E5M2, 3, 15, 57344, false},
                                        {ATTN_E4M3FNUZ, 4, 8, 240, true},
                                        {ATTN_E5M2FNUZ, 3, 16, 57344, true}};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static const struct format *format_of(uint32_t dtype)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    return NULL; /* int8 */
}

bool oracle_is_8bit(uint32_t dtype)
{
    return dtype == ATTN_INT8 || format_of(dtype) != NULL;
}

double oracle_most8(uint32_t dtype)
{
    return dtype == ATTN_INT8 ? 127 : format_of(dtype)->most;
}

static double magnitude(const struct format *format, uint32_t code)
{
    int fraction_bits = format->digits - 1;
    int exponent = (int)(code >> fraction_bits);
    double fraction = (double)(code & ((UINT32_C(1) << fraction_bits) - 1));

    if (exponent == 0)
        return fraction * oracle_power2(1 - format->bias - fraction_bits);
    return (fraction + oracle_power2(fraction_bits)) * oracle_power2(exponent - format->bias - fraction_bits);
}

static double decode(const struct format *format, uint8_t code)
{
    uint32_t rest = code & 0x7f;

    if (format == NULL)
        return (double)(int8_t)code;
    if (format->fnuz ? code == 0x80 : format->dtype == ATTN_E4M3 ? rest == 0x7f : rest > 0x7c)
        return (double)NAN;
    double value = format->dtype == ATTN_E5M2 && rest == 0x7c ? (double)INFINITY : magnitude(format, rest);
    return code > 0x7f ? -value : value;
}

/* What all codes mean, int8 last. Made before main(), for threads read it. */
static double values[FORMATS + 1][256];

__attribute__((constructor)) static void make_values(void)
{
    for (size_t i = 0; i <= FORMATS; i++)
        for (uint32_t code = 0; code < 256; code++)
            values[i][code] = decode(i < FORMATS ? &formats[i] : NULL, (uint8_t)code);
}

/* A check spends much of its time here: a key is loaded for every query that sees it. */
void oracle_load8(uint32_t dtype, const uint8_t *from, uint32_t count, double *to)
{
    const struct format *format = format_of(dtype);
    const double *value = values[format != NULL ? (size_t)(format - formats) : FORMATS];

    for (uint32_t i = 0; i < count; i++)
        to[i] = value[from[i]];
}

double oracle_decode8(uint32_t dtype, uint8_t code)
{
    double value;

    oracle_load8(dtype, &code, 1, &value);
    return value;
}

static uint8_t encode_int8(double value)
{
    if (isnan(value))
        return 0;
    double rounded = nearbyint(value); /* ties to even: the default rounding mode */
    if (fabs(rounded) > 127)
        rounded = copysign(127, rounded);
    return (uint8_t)(int8_t)rounded;
}

uint8_t oracle_encode8(uint32_t dtype, double value)
{
    const struct format *format = format_of(dtype);

    if (format == NULL)
        return encode_int8(value);
    if (isnan(value))
        return format->fnuz ? 0x80 : 0x7f;
    int least = 1 - format->bias, fraction_bits = format->digits - 1;
    double size = fabs(value);
    if (size > format->most)
        size = format->most;
    double step = oracle_step(size, format->digits, least);
    size = nearbyint(size / step) * step;
    uint32_t code;
    if (size < ldexp(1, least)) { /* subnormal: a count of least steps */
        code = (uint32_t)ldexp(size, fraction_bits - least);
    } else {
        int exponent;
        double fraction = frexp(size, &exponent); /* 0.5 <= fraction < 1 */
        code = (uint32_t)(exponent - 1 + format->bias) << fraction_bits |
               ((uint32_t)ldexp(fraction, format->digits) & ((UINT32_C(1) << fraction_bits) - 1));
    }
    if (code == 0 && format->fnuz)
        return 0;
    return (uint8_t)(code | (signbit(value) ? 0x80U : 0));
}

uint8_t oracle_write8(uint32_t dtype, double value, double scale)
{
    return oracle_encode8(dtype, (double)((float)value / (float)scale));
}

bool oracle_accepts8(uint32_t dtype, double value, double scale, uint8_t code)
{
    double exact = value / scale, reach = 3 * oracle_ulp32(exact), least = fmax(fabs(exact) - reach, 0);

    if (code == oracle_write8(dtype, value, scale))
        return true;
    if (!isfinite(exact))
        return false;
    return code == oracle_encode8(dtype, copysign(least, exact)) ||
           code == oracle_encode8(dtype, copysign(fabs(exact) + reach, exact));
}

double oracle_token_scale(uint32_t dtype, const double *row, uint32_t count)
{
    double most = 0;

    for (uint32_t d = 0; d < count; d++) {
        if (!isfinite(row[d]))
            return (double)NAN;
        most = fmax(most, fabs(row[d]));
    }
    float scale = (float)most / (float)oracle_most8(dtype);
    return scale < 0x1p-126f ? 1 : (double)scale;
}

double oracle_write_row8(uint32_t dtype, const double *row, uint32_t count, uint8_t *to)
{
    double scale = oracle_token_scale(dtype, row, count);

    for (uint32_t d = 0; d < count; d++)
        to[d] = oracle_write8(dtype, row[d], scale);
    return scale;
}
