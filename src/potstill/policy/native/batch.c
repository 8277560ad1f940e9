/* Batch methods: many contexts, ids or decisions per call, in arrays. */
#include "extension.h"

#include <string.h>

/* Contexts per pass through the network: enough to amortise reading the weights, few enough to stay in cache. */
enum { TOGETHER = 8 };

/* The arrays of a call; an absent one is all zeros. */
typedef struct {
    Py_buffer encoded, eligible, draws, actions, p;
    double floor;
} Batch;

static void batch_close(Batch *batch)
{
    PyBuffer_Release(&batch->encoded);
    PyBuffer_Release(&batch->eligible);
    PyBuffer_Release(&batch->draws);
    PyBuffer_Release(&batch->actions);
    PyBuffer_Release(&batch->p);
}

/* Opens an array [rows, columns], or [rows] if columns is negative, with a type among the characters in `types`. */
static bool open_array(PyObject *object, Py_buffer *view, const char *types, int flags, Py_ssize_t rows,
                       Py_ssize_t columns)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) < 0) return false;
    const bool typed = view->format && strlen(view->format) == 1 && strchr(types, view->format[0]);
    const bool aligned = (uintptr_t)view->buf % (uintptr_t)view->itemsize == 0;
    const bool shaped = columns < 0 ? view->ndim == 1 : view->ndim == 2 && view->shape[1] == columns;
    if (typed && aligned && shaped && view->shape[0] == rows) return true;
    PyErr_Format(PyExc_ValueError, "expected an array of type '%s' and shape (%zd, %zd)", types, rows, columns);
    return false;
}

static bool open_batch(const Kernel *self, Batch *batch, PyObject *encoded, PyObject *eligible)
{
    const Py_ssize_t rows = PyObject_Size(encoded), actions = (Py_ssize_t)self->policy.actions;
    if (rows < 0) return false;
    if (!open_array(encoded, &batch->encoded, "f", 0, rows, (Py_ssize_t)self->policy.width)) return false;
    if (eligible == Py_None) return true;
    return open_array(eligible, &batch->eligible, "?", 0, rows, actions);
}

static Py_ssize_t batch_rows(const Batch *batch)
{
    return batch->encoded.shape[0];
}

/* Processes some contexts of a batch. It touches no Python object, so it runs without the GIL. */
typedef potstill_status (*Step)(const potstill_policy *policy, const Batch *batch, size_t row, size_t contexts,
                                float *scratch);

static const float *encoded_at(const Batch *batch, size_t row)
{
    return (const float *)batch->encoded.buf + row * (size_t)batch->encoded.shape[1];
}

static const uint8_t *eligible_at(const Batch *batch, size_t row)
{
    return batch->eligible.obj ? (const uint8_t *)batch->eligible.buf + row * (size_t)batch->eligible.shape[1] : NULL;
}

static potstill_status step_probabilities(const potstill_policy *policy, const Batch *batch, size_t row,
                                          size_t contexts, float *scratch)
{
    return potstill_probabilities_many(policy, contexts, encoded_at(batch, row), eligible_at(batch, row), batch->floor,
                                       scratch, (float *)batch->p.buf + row * policy->actions);
}

static potstill_status step_decisions(const potstill_policy *policy, const Batch *batch, size_t row, size_t contexts,
                                      float *scratch)
{
    potstill_decision decisions[TOGETHER];
    const potstill_status status =
        potstill_decide_many(policy, contexts, encoded_at(batch, row), (const double *)batch->draws.buf + row,
                             eligible_at(batch, row), batch->floor, scratch, decisions);
    for (size_t i = 0; status == POTSTILL_OK && i < contexts; i++) {
        ((int64_t *)batch->actions.buf)[row + i] = (int64_t)decisions[i].action;
        ((float *)batch->p.buf)[row + i] = decisions[i].propensity;
    }
    return status;
}

static potstill_status step_numbers(const potstill_policy *policy, const Batch *batch, size_t row, size_t contexts,
                                    float *scratch)
{
    potstill_number numbers[TOGETHER];
    const double *intervals = batch->eligible.obj ? (const double *)batch->eligible.buf + 2 * row : NULL;
    const potstill_status status =
        potstill_decide_numbers(policy, contexts, encoded_at(batch, row), (const double *)batch->draws.buf + 2 * row,
                                intervals, batch->floor, scratch, numbers);
    for (size_t i = 0; status == POTSTILL_OK && i < contexts; i++) {
        ((double *)batch->actions.buf)[row + i] = numbers[i].value;
        ((double *)batch->p.buf)[row + i] = numbers[i].density;
    }
    return status;
}

static bool run_steps(const potstill_policy *policy, const Batch *batch, Step step, float *scratch)
{
    const size_t rows = (size_t)batch_rows(batch);
    for (size_t row = 0; row < rows; row += TOGETHER) {
        const size_t contexts = rows - row < TOGETHER ? rows - row : TOGETHER;
        if (step(policy, batch, row, contexts, scratch) != POTSTILL_OK) return false;
    }
    return true;
}

static PyObject *run_batch(const Kernel *self, const Batch *batch, Step step)
{
    Workspace space;
    bool done;
    if (!workspace_open(&space, self, TOGETHER)) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    done = run_steps(&self->policy, batch, step, space.scratch);
    Py_END_ALLOW_THREADS
    workspace_close(&space);
    return PyBool_FromLong(done);
}

PyObject *Kernel_probabilities(Kernel *self, PyObject *args)
{
    PyObject *encoded, *eligible, *p, *result = NULL;
    Batch batch = {0};
    if (!PyArg_ParseTuple(args, "OOdO:probabilities", &encoded, &eligible, &batch.floor, &p)) return NULL;
    if (open_batch(self, &batch, encoded, eligible) &&
        open_array(p, &batch.p, "f", PyBUF_WRITABLE, batch_rows(&batch), (Py_ssize_t)self->policy.actions))
        result = run_batch(self, &batch, step_probabilities);
    batch_close(&batch);
    return result;
}

PyObject *Kernel_decide_many(Kernel *self, PyObject *args)
{
    PyObject *encoded, *draws, *eligible, *actions, *propensities, *result = NULL;
    Batch batch = {0};
    if (!PyArg_ParseTuple(args, "OOOdOO:decide_many", &encoded, &draws, &eligible, &batch.floor, &actions,
                          &propensities))
        return NULL;
    if (open_batch(self, &batch, encoded, eligible) &&
        open_array(draws, &batch.draws, "d", 0, batch_rows(&batch), -1) &&
        open_array(actions, &batch.actions, sizeof(long) == 8 ? "lq" : "q", PyBUF_WRITABLE, batch_rows(&batch), -1) &&
        open_array(propensities, &batch.p, "f", PyBUF_WRITABLE, batch_rows(&batch), -1))
        result = run_batch(self, &batch, step_decisions);
    batch_close(&batch);
    return result;
}

PyObject *Kernel_decide_numbers(Kernel *self, PyObject *args)
{
    PyObject *encoded, *draws, *intervals, *actions, *densities, *result = NULL;
    Batch batch = {0};
    if (!PyArg_ParseTuple(args, "OOOdOO:decide_numbers", &encoded, &draws, &intervals, &batch.floor, &actions,
                          &densities))
        return NULL;
    if (!self->edges) return PyErr_Format(PyExc_ValueError, "the policy chooses names, not numbers");
    if (open_batch(self, &batch, encoded, Py_None) &&
        (intervals == Py_None || open_array(intervals, &batch.eligible, "d", 0, batch_rows(&batch), 2)) &&
        open_array(draws, &batch.draws, "d", 0, batch_rows(&batch), 2) &&
        open_array(actions, &batch.actions, "d", PyBUF_WRITABLE, batch_rows(&batch), -1) &&
        open_array(densities, &batch.p, "d", PyBUF_WRITABLE, batch_rows(&batch), -1))
        result = run_batch(self, &batch, step_numbers);
    batch_close(&batch);
    return result;
}

typedef bool (*Reader)(const Kernel *self, PyObject *context, Workspace *space, float *encoded);

/* Checks the list's length here, because opening `out` may have run Python code that changed it. */
static bool read_all(const Kernel *self, PyObject *contexts, const Py_buffer *out, Reader read)
{
    Workspace space;
    float *encoded = out->buf;
    if (PyList_GET_SIZE(contexts) != out->shape[0] || !workspace_open(&space, self, 1)) return false;
    bool done = true;
    for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(contexts); i++, encoded += self->policy.width)
        done = read(self, PyList_GET_ITEM(contexts, i), &space, encoded);
    workspace_close(&space);
    return done;
}

static PyObject *encode_with(const Kernel *self, PyObject *args, Reader read)
{
    PyObject *contexts, *out, *result = NULL;
    Py_buffer view = {0};
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &contexts, &out)) return NULL;
    if (open_array(out, &view, "f", PyBUF_WRITABLE, PyList_GET_SIZE(contexts), (Py_ssize_t)self->policy.width))
        result = PyBool_FromLong(read_all(self, contexts, &view, read));
    PyBuffer_Release(&view);
    return result;
}

PyObject *Kernel_encode_many(Kernel *self, PyObject *args)
{
    return encode_with(self, args, read_named);
}

PyObject *Kernel_encode_rows(Kernel *self, PyObject *args)
{
    return encode_with(self, args, read_ordered);
}

static bool draw_all(const Kernel *self, PyObject *ids, const Py_buffer *out)
{
    potstill_text id;
    double *draws = out->buf;
    const size_t each = self->edges ? 2 : 1;
    bool done = PyList_GET_SIZE(ids) == out->shape[0];
    for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(ids); i++)
        done = read_text(PyList_GET_ITEM(ids, i), &id) &&
               potstill_uniforms(&self->policy, id, each, &draws[(size_t)i * each]) == POTSTILL_OK;
    return done;
}

PyObject *Kernel_uniforms(Kernel *self, PyObject *args)
{
    PyObject *ids, *out, *result = NULL;
    Py_buffer view = {0};
    if (!PyArg_ParseTuple(args, "O!O:uniforms", &PyList_Type, &ids, &out)) return NULL;
    if (open_array(out, &view, "d", PyBUF_WRITABLE, PyList_GET_SIZE(ids), self->edges ? 2 : -1))
        result = PyBool_FromLong(draw_all(self, ids, &view));
    PyBuffer_Release(&view);
    return result;
}

/* ---- digests --------------------------------------------------------------------------------------------------- */

/* The bits of a number, with -0.0 mapped to 0.0 so that equal numbers have equal bits. */
static uint64_t number_bits(double number)
{
    uint64_t bits;
    number += 0.0;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static bool digest_of(PyObject *row, uint64_t *digest)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(row); i++) {
        PyObject *value = PyTuple_GET_ITEM(row, i);
        const bool number = PyFloat_CheckExact(value);
        const Py_hash_t hash = number ? 0 : PyObject_Hash(value);
        if (hash == -1) return false;
        *digest ^= number ? number_bits(PyFloat_AS_DOUBLE(value)) : (uint64_t)hash;
        *digest *= UINT64_C(0x9e3779b97f4a7c15); /* odd, hence invertible modulo 2^64 */
        *digest ^= *digest >> 32;
    }
    return true;
}

PyObject *digests(PyObject *Py_UNUSED(module), PyObject *rows)
{
    if (!PyList_CheckExact(rows)) return PyErr_Format(PyExc_TypeError, "digests takes a list of tuples");
    PyObject *result = PyList_New(0);
    for (Py_ssize_t i = 0; result && i < PyList_GET_SIZE(rows); i++) {
        uint64_t digest = 1;
        PyObject *row = PyList_GET_ITEM(rows, i), *number = NULL;
        if (!PyTuple_CheckExact(row)) PyErr_SetString(PyExc_TypeError, "digests takes a list of tuples");
        else if (digest_of(row, &digest)) number = PyLong_FromUnsignedLongLong(digest);
        if (!number || PyList_Append(result, number) < 0) Py_CLEAR(result);
        Py_XDECREF(number);
    }
    return result;
}
