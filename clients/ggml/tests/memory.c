/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers of a GPU's device: what is cleared, set and copied comes back. */
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 10001 };

/* Whether bytes `from` to `to` of a tensor are `value`. */
static int has(const struct ggml_tensor *tensor, size_t from, size_t to, unsigned char value)
{
    unsigned char bytes[SIZE];
    ggml_backend_tensor_get(tensor, bytes, 0, SIZE);
    for (size_t i = from; i < to; i++)
        if (bytes[i] != value) {
            printf("byte %zu is %u, not %u\n", i, bytes[i], value);
            return 0;
        }
    return 1;
}

static int check(ggml_backend_buffer_t buffer, struct ggml_tensor *a, struct ggml_tensor *b)
{
    unsigned char ones[SIZE];
    memset(ones, 1, SIZE);
    ggml_backend_buffer_clear(buffer, 7);
    int right = has(a, 0, SIZE, 7) && has(b, 0, SIZE, 7);
    ggml_backend_tensor_set(a, ones, 100, SIZE - 200);
    right = right && has(a, 0, 100, 7) && has(a, 100, SIZE - 100, 1) && has(a, SIZE - 100, SIZE, 7);
    ggml_backend_tensor_memset(a, 3, 5000, 5000);
    right = right && has(a, 100, 5000, 1) && has(a, 5000, 10000, 3) && has(a, 10000, SIZE, 7);
    ggml_backend_tensor_copy(a, b);
    return right && has(b, 0, 100, 7) && has(b, 100, 5000, 1) && has(b, 5000, 10000, 3) &&
           has(b, 10000, SIZE, 7);
}

int main(void)
{
    ggml_backend_load_all();
    const struct ggml_init_params params = {.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true};
    ggml_backend_dev_t device = ggml_backend_dev_by_name("LIBATTN1");
    if (device == NULL) {
        puts("there is no device LIBATTN1");
        return 1;
    }
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    struct ggml_context *context = ggml_init(params);
    struct ggml_tensor *a = ggml_new_tensor_1d(context, GGML_TYPE_I8, SIZE),
                       *b = ggml_new_tensor_1d(context, GGML_TYPE_I8, SIZE);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    const int right = buffer != NULL && check(buffer, a, b);
    puts(right ? "memory of LIBATTN1: right" : "memory of LIBATTN1: wrong");
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(context);
    return !right;
}
