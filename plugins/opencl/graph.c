/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Graphs: the commands of a captured stream, kept in order, which a launch enqueues. Each kernel of a graph
 * is an object of its own whose arguments are set at the capture, so that plans and caches may go before the
 * graph.
 */
#include "opencl.h"

struct node {
    struct node *next;
    enum { NODE_KERNEL, NODE_COPY, NODE_HOST } kind;
    cl_kernel kernel;
    struct opencl_grid grid;
    struct opencl_copy copy;
    attn_host_fn fn;
    void *arg;
    cl_mem buffers[OPENCL_BUFFERS]; /* retained; NULL: none */
};

struct attn_graph_impl {
    struct attn_graph_impl *next; /* next capture of the backend */
    struct attn_backend_impl *backend;
    void *stream; /* that is captured; NULL after the capture */
    struct node *first;
    struct node **end; /* where the next node goes */
    int32_t status;    /* of the first command that could not be kept */
};

/* ---------------------------------------------------------------- captures */

struct attn_graph_impl *opencl_graph_find(struct attn_backend_impl *backend, void *stream)
{
    struct attn_graph_impl *graph;

    if (stream == NULL)
        return NULL;
    pthread_mutex_lock(&backend->lock);
    for (graph = backend->captures; graph != NULL && graph->stream != stream; graph = graph->next)
        continue;
    pthread_mutex_unlock(&backend->lock);
    return graph;
}

static void stop_capture(struct attn_graph_impl *graph)
{
    struct attn_backend_impl *backend = graph->backend;
    struct attn_graph_impl **at = &backend->captures;

    pthread_mutex_lock(&backend->lock);
    while (*at != NULL && *at != graph)
        at = &(*at)->next;
    if (*at != NULL)
        *at = graph->next;
    graph->stream = NULL;
    pthread_mutex_unlock(&backend->lock);
}

void opencl_graph_forget(struct attn_backend_impl *backend, void *stream)
{
    struct attn_graph_impl *graph = opencl_graph_find(backend, stream);

    if (graph != NULL)
        stop_capture(graph);
}

int32_t opencl_graph_refuse(struct attn_backend_impl *backend, void *stream, const char *text,
                            struct attn_error *err)
{
    return opencl_graph_find(backend, stream) == NULL
               ? ATTN_OK
               : opencl_fail(err, ATTN_E_STATE, 0, "stream", "%s", text);
}

int32_t opencl_graph_begin(struct attn_backend_impl *backend, void *stream, struct attn_graph_impl **out,
                           struct attn_error *err)
{
    const int32_t status = opencl_graph_refuse(backend, stream, "the stream is captured already", err);
    struct attn_graph_impl *graph;

    *out = NULL;
    if (status != ATTN_OK)
        return status;
    if (stream == NULL)
        return opencl_fail(err, ATTN_E_STATE, 0, "stream", "stream is NULL, which cannot be captured");
    graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "graph", "no memory for a graph");
    graph->backend = backend;
    graph->stream = stream;
    graph->end = &graph->first;
    pthread_mutex_lock(&backend->lock);
    graph->next = backend->captures;
    backend->captures = graph;
    pthread_mutex_unlock(&backend->lock);
    *out = graph;
    return ATTN_OK;
}

int32_t opencl_graph_end(struct attn_graph_impl *graph, struct attn_error *err)
{
    if (graph->stream == NULL)
        return opencl_fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    stop_capture(graph);
    if (graph->status != ATTN_OK)
        return opencl_fail(err, graph->status, 0, "graph", "a call of the capture could not be kept");
    return ATTN_OK;
}

/* ---------------------------------------------------------------- nodes */

static void drop_node(const struct opencl_functions *cl, struct node *node)
{
    for (uint32_t i = 0; i < OPENCL_BUFFERS; i++)
        if (node->buffers[i] != NULL)
            cl->clReleaseMemObject(node->buffers[i]);
    if (node->kernel != NULL)
        cl->clReleaseKernel(node->kernel);
    free(node);
}

/* Appends a node, or drops it if it could not be made. */
static int32_t add_node(struct attn_graph_impl *graph, struct node *node, int32_t status)
{
    if (status != ATTN_OK) {
        drop_node(graph->backend->cl, node);
        graph->status = graph->status != ATTN_OK ? graph->status : status;
        return status;
    }
    *graph->end = node;
    graph->end = &node->next;
    return ATTN_OK;
}

static struct node *make_node(struct attn_graph_impl *graph, struct attn_error *err)
{
    struct node *node = calloc(1, sizeof *node);

    if (node == NULL)
        graph->status = opencl_fail(err, ATTN_E_MEMORY, 0, "graph", "no memory to keep a call");
    return node;
}

static int32_t retain(const struct opencl_functions *cl, struct node *node, uint32_t i, cl_mem buffer,
                      struct attn_error *err)
{
    const int32_t status = opencl_check(cl->clRetainMemObject(buffer), "graph", "clRetainMemObject", err);

    if (status == ATTN_OK)
        node->buffers[i] = buffer;
    return status;
}

/* Another object of the same kernel; it keeps the program. */
static cl_int copy_kernel(const struct opencl_functions *cl, cl_kernel kernel, cl_kernel *out)
{
    cl_program program = NULL;
    char name[64] = "";
    cl_int result = cl->clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);

    if (result == CL_SUCCESS)
        result = cl->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (result == CL_SUCCESS)
        *out = cl->clCreateKernel(program, name, &result);
    return result;
}

int32_t opencl_graph_add_launch(struct attn_graph_impl *graph, cl_kernel kernel,
                                const struct opencl_launch *launch, const struct opencl_grid *grid,
                                struct attn_error *err)
{
    const struct opencl_functions *cl = graph->backend->cl;
    struct node *node = make_node(graph, err);

    if (node == NULL)
        return ATTN_E_MEMORY;
    node->kind = NODE_KERNEL;
    node->grid = *grid;
    int32_t status = opencl_check(copy_kernel(cl, kernel, &node->kernel), "graph", "clCreateKernel", err);
    if (status == ATTN_OK)
        status = opencl_check(opencl_launch_set(cl, node->kernel, launch), "graph", "clSetKernelArg", err);
    for (uint32_t i = 0; i < OPENCL_BUFFERS && status == ATTN_OK; i++)
        if (launch->buffers[i] != NULL)
            status = retain(cl, node, i, launch->buffers[i], err);
    return add_node(graph, node, status);
}

int32_t opencl_graph_add_copy(struct attn_graph_impl *graph, const struct opencl_copy *copy,
                              struct attn_error *err)
{
    const struct opencl_functions *cl = graph->backend->cl;
    struct node *node = make_node(graph, err);
    int32_t status = ATTN_OK;

    if (node == NULL)
        return ATTN_E_MEMORY;
    node->kind = NODE_COPY;
    node->copy = *copy;
    if (copy->kind != ATTN_COPY_TO_HOST)
        status = retain(cl, node, 0, (cl_mem)copy->to.data, err);
    if (status == ATTN_OK && copy->kind != ATTN_COPY_TO_DEVICE)
        status = retain(cl, node, 1, (cl_mem)copy->from.data, err);
    return add_node(graph, node, status);
}

int32_t opencl_graph_add_host(struct attn_graph_impl *graph, attn_host_fn fn, void *arg,
                              struct attn_error *err)
{
    if (graph->stream == NULL)
        return opencl_fail(err, ATTN_E_STATE, 0, "stream", "the stream was destroyed while it was captured");
    struct node *node = make_node(graph, err);
    if (node == NULL)
        return ATTN_E_MEMORY;
    node->kind = NODE_HOST;
    node->fn = fn;
    node->arg = arg;
    return add_node(graph, node, ATTN_OK);
}

/* ---------------------------------------------------------------- launches */

/* A call of the program's function by a launch. */
struct host_call {
    const struct opencl_functions *cl;
    attn_host_fn fn;
    void *arg;
    cl_event done; /* a user event, which the commands behind the call wait for */
};

static void CL_CALLBACK call_host(cl_event before, cl_int state, void *data)
{
    struct host_call *call = data;

    (void)before;
    call->fn(call->arg);
    /* Where the commands before it failed, those behind it do. */
    call->cl->clSetUserEventStatus(call->done, state < 0 ? state : CL_COMPLETE);
    call->cl->clReleaseEvent(call->done);
    free(call);
}

/* Drops the call if it will not come. */
static cl_int set_call(const struct opencl_functions *cl, cl_command_queue queue, struct host_call *call)
{
    cl_event before = NULL;
    cl_int result = cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, &before);

    if (result == CL_SUCCESS) {
        result = cl->clSetEventCallback(before, CL_COMPLETE, call_host, call);
        cl->clReleaseEvent(before);
    }
    if (result != CL_SUCCESS) {
        cl->clReleaseEvent(call->done);
        free(call);
    }
    return result;
}

/*
 * The marker is flushed alone: Rusticl looks at the commands of a flush together, and would wait for the call
 * before it tells that the marker has come.
 */
static int32_t enqueue_host(const struct attn_backend_impl *backend, const struct node *node,
                            cl_command_queue queue, struct attn_error *err)
{
    const struct opencl_functions *cl = backend->cl;
    struct host_call *call = malloc(sizeof *call);
    cl_int result = CL_SUCCESS;

    if (call == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "graph", "no memory to call a function of the program");
    const cl_event done = cl->clCreateUserEvent(backend->context, &result);
    int32_t status = opencl_check(result, "graph", "clCreateUserEvent", err);
    if (status != ATTN_OK) {
        free(call);
        return status;
    }
    *call = (struct host_call){cl, node->fn, node->arg, done};
    cl->clRetainEvent(done); /* once for the call */
    status = opencl_check(set_call(cl, queue, call), "graph", "clSetEventCallback", err);
    if (status == ATTN_OK)
        status = opencl_check(cl->clFlush(queue), "stream", "clFlush", err);
    if (status == ATTN_OK)
        status = opencl_check(cl->clEnqueueBarrierWithWaitList(queue, 1, &done, NULL), "graph",
                              "clEnqueueBarrierWithWaitList", err);
    cl->clReleaseEvent(done);
    return status;
}

int32_t opencl_graph_launch(struct attn_graph_impl *graph, void *stream, struct attn_error *err)
{
    struct attn_backend_impl *backend = graph->backend;
    cl_command_queue queue = opencl_queue(backend, stream);
    int32_t status = opencl_graph_refuse(backend, stream, "a graph cannot be launched into a capture", err);

    for (const struct node *node = graph->first; node != NULL && status == ATTN_OK; node = node->next)
        if (node->kind == NODE_KERNEL)
            status = opencl_launch_start(backend->cl, node->kernel, &node->grid, queue, err);
        else if (node->kind == NODE_COPY)
            status = opencl_copy_start(backend->cl, &node->copy, queue, err);
        else
            status = enqueue_host(backend, node, queue, err);
    return status == ATTN_OK ? opencl_check(backend->cl->clFlush(queue), "stream", "clFlush", err) : status;
}

void opencl_graph_destroy(struct attn_graph_impl *graph)
{
    if (graph == NULL)
        return;
    stop_capture(graph);
    for (struct node *node = graph->first, *next; node != NULL; node = next) {
        next = node->next;
        drop_node(graph->backend->cl, node);
    }
    free(graph);
}
