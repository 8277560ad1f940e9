/* Reads a decision request; extension.h states what is read here and what is left to Python. */
#include "extension.h"

#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------------------------- */

bool workspace_open(Workspace *space, const Kernel *kernel, size_t contexts)
{
    const potstill_policy *policy = &kernel->policy;
    const size_t values = policy->feature_count * sizeof(potstill_value);
    const size_t numbers = kernel->number_count * sizeof(double);
    const size_t scratch = contexts * potstill_scratch_size(policy) * sizeof(float);
    const size_t encoded = policy->width * sizeof(float);
    const size_t size = scratch + values + numbers + encoded + policy->actions + CACHE_LINE;
    space->heap = size > sizeof space->stack ? PyMem_RawMalloc(size) : NULL;
    if (!space->heap && size > sizeof space->stack) return false;
    char *memory = space->heap ? space->heap : space->stack;
    memory += CACHE_LINE - (uintptr_t)memory % CACHE_LINE;
    space->scratch = (float *)(void *)memory;
    space->values = (potstill_value *)(void *)(memory += scratch);
    space->numbers = (double *)(void *)(memory += values);
    space->encoded = (float *)(void *)(memory += numbers);
    space->eligible = (uint8_t *)(memory + encoded);
    return true;
}

void workspace_close(Workspace *space)
{
    PyMem_RawFree(space->heap);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

bool read_text(PyObject *object, potstill_text *text)
{
    Py_ssize_t length;
    if (!PyUnicode_CheckExact(object)) return false;
    text->bytes = PyUnicode_AsUTF8AndSize(object, &length);
    if (!text->bytes) { /* a lone surrogate */
        PyErr_Clear();
        return false;
    }
    text->length = (size_t)length;
    return true;
}

static bool read_integer(PyObject *object, double *number)
{
    *number = PyLong_AsDouble(object);
    if (*number == -1.0 && PyErr_Occurred()) { /* beyond the largest double */
        PyErr_Clear();
        return false;
    }
    return true;
}

/* The numbers of a list or tuple, into memory for as many as the vector has; false if it has others. */
static bool read_numbers(PyObject *object, potstill_numbers *numbers, double *memory, size_t room)
{
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) return false;
    if ((size_t)PySequence_Fast_GET_SIZE(object) != room) return false;
    for (size_t i = 0; i < room; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(object, (Py_ssize_t)i);
        if (PyFloat_CheckExact(item)) memory[i] = PyFloat_AS_DOUBLE(item);
        else if (!PyLong_CheckExact(item) || !read_integer(item, &memory[i])) return false;
    }
    *numbers = (potstill_numbers){memory, room};
    return true;
}

static bool read_value(PyObject *object, potstill_value *value)
{
    if (PyFloat_CheckExact(object)) {
        value->type = POTSTILL_NUMBER;
        value->as.number = PyFloat_AS_DOUBLE(object);
        return true;
    }
    if (PyUnicode_CheckExact(object)) {
        value->type = POTSTILL_TEXT;
        return read_text(object, &value->as.text);
    }
    if (PyLong_CheckExact(object)) {
        value->type = POTSTILL_NUMBER;
        return read_integer(object, &value->as.number);
    }
    if (PyBool_Check(object)) {
        value->type = POTSTILL_TRUTH;
        value->as.truth = object == Py_True;
        return true;
    }
    value->type = POTSTILL_MISSING;
    return object == Py_None;
}

/* ---- contexts -------------------------------------------------------------------------------------------------- */

/* The position of a name in a dict; -1 if it is absent. */
static Py_ssize_t look_up(PyObject *positions, PyObject *name)
{
    if (!PyUnicode_CheckExact(name)) return -1;
    PyObject *position = PyDict_GetItemWithError(positions, name);
    if (!position) PyErr_Clear();
    return position ? PyLong_AsSsize_t(position) : -1;
}

/* Whether two strings are the same object, or evidently equal: a fast check of the common cases. */
static bool evidently_equal(PyObject *a, PyObject *b)
{
    return a == b || (PyUnicode_CheckExact(a) && same_text(a, b));
}

/* The position of a feature. Callers mostly send features in the problem's order, so the next one is tried first. */
static Py_ssize_t find_feature(const Kernel *self, PyObject *name, Py_ssize_t next)
{
    if (next < PyTuple_GET_SIZE(self->names) && evidently_equal(name, PyTuple_GET_ITEM(self->names, next))) return next;
    return look_up(self->positions, name);
}

/* The value of a feature; lists are read into the part of `numbers` that is the feature's. */
static bool read_feature(const Kernel *self, size_t position, PyObject *object, potstill_value *value, double *numbers)
{
    if (self->policy.features[position].kind != POTSTILL_VECTOR || object == Py_None) return read_value(object, value);
    value->type = POTSTILL_NUMBERS;
    return read_numbers(object, &value->as.numbers, numbers + self->offsets[position],
                        self->policy.features[position].size);
}

static bool encode(const Kernel *self, const potstill_value *values, float *encoded)
{
    return potstill_encode(&self->policy, values, encoded, NULL) == POTSTILL_OK;
}

bool read_named(const Kernel *self, PyObject *context, Workspace *space, float *encoded)
{
    PyObject *name, *object;
    Py_ssize_t at = 0, position = -1;
    potstill_value *values = space->values;
    if (!PyDict_CheckExact(context)) return false;
    memset(values, 0, self->policy.feature_count * sizeof *values);
    while (PyDict_Next(context, &at, &name, &object)) {
        position = find_feature(self, name, position + 1);
        if (position < 0) return false;
        if (!read_feature(self, (size_t)position, object, &values[position], space->numbers)) return false;
    }
    return encode(self, values, encoded);
}

bool read_ordered(const Kernel *self, PyObject *context, Workspace *space, float *encoded)
{
    const size_t count = self->policy.feature_count;
    if (!PyTuple_CheckExact(context) || PyTuple_GET_SIZE(context) != (Py_ssize_t)count) return false;
    for (size_t i = 0; i < count; i++)
        if (!read_feature(self, i, PyTuple_GET_ITEM(context, (Py_ssize_t)i), &space->values[i], space->numbers))
            return false;
    return encode(self, space->values, encoded);
}

static bool copy_encoded(const Kernel *self, const Py_buffer *view, float *encoded)
{
    const size_t width = self->policy.width;
    if (view->ndim != 1 || view->len != (Py_ssize_t)(width * sizeof(float)) || strcmp(view->format, "f") != 0)
        return false;
    memcpy(encoded, view->buf, width * sizeof(float));
    return true;
}

static bool read_array(const Kernel *self, PyObject *array, float *encoded)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return false;
    }
    const bool read = copy_encoded(self, &view, encoded);
    PyBuffer_Release(&view);
    return read;
}

bool read_context(const Kernel *self, PyObject *context, Workspace *space)
{
    if ((PyObject *)Py_TYPE(context) == self->array) return read_array(self, context, space->encoded);
    return read_named(self, context, space, space->encoded);
}

bool read_row(const Kernel *self, PyObject *values, Workspace *space)
{
    return read_ordered(self, values, space, space->encoded);
}

/* ---- options --------------------------------------------------------------------------------------------------- */

bool read_eligible(const Kernel *self, PyObject *eligible, uint8_t *mask)
{
    if (!PyTuple_CheckExact(eligible) && !PyList_CheckExact(eligible)) return false;
    memset(mask, 0, self->policy.actions);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(eligible); i++) {
        const Py_ssize_t place = look_up(self->places, PySequence_Fast_GET_ITEM(eligible, i));
        if (place < 0) return false;
        mask[place] = 1;
    }
    return PySequence_Fast_GET_SIZE(eligible) > 0;
}

/* An interval: a list or tuple of two numbers. */
bool read_interval(PyObject *eligible, double interval[2])
{
    if (!PyTuple_CheckExact(eligible) && !PyList_CheckExact(eligible)) return false;
    if (PySequence_Fast_GET_SIZE(eligible) != 2) return false;
    for (Py_ssize_t i = 0; i < 2; i++) {
        potstill_value value;
        PyObject *end = PySequence_Fast_GET_ITEM(eligible, i);
        if (!read_value(end, &value) || value.type != POTSTILL_NUMBER) return false;
        interval[i] = value.as.number;
    }
    return true; /* the kernel checks the bounds */
}

bool read_floor(const Kernel *self, PyObject *floor, double *number)
{
    if (floor == Py_None) {
        *number = self->policy.floor;
        return true;
    }
    if (PyLong_CheckExact(floor)) return read_integer(floor, number);
    *number = PyFloat_CheckExact(floor) ? PyFloat_AS_DOUBLE(floor) : -1.0; /* the kernel checks the range */
    return *number >= 0.0;
}
