/* Construction and deallocation of a Kernel from the parts of a Python policy. */
#include "extension.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PADDING = 16, DAY = 86400 }; /* columns: the width of the kernel's widest vector; seconds */

/* ---- features -------------------------------------------------------------------------------------------------- */

/* The position of a word in a NULL-terminated list; -1 with an exception set if it is not in the list. */
static int position_of(const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++) {
        if (strcmp(word, words[i]) == 0) return i;
    }
    PyErr_Format(PyExc_ValueError, "unknown word %s", word);
    return -1;
}

static int compare_categories(const void *left, const void *right)
{
    const potstill_text a = ((const potstill_category *)left)->text, b = ((const potstill_category *)right)->text;
    if (a.length != b.length) return a.length < b.length ? -1 : 1;
    return memcmp(a.bytes, b.bytes, a.length);
}

static bool build_categories(potstill_feature *feature, PyObject *values)
{
    const size_t count = (size_t)PyTuple_GET_SIZE(values);
    potstill_category *categories = PyMem_RawCalloc(count + 1, sizeof *categories);
    if (!categories) return PyErr_NoMemory(), false;
    feature->categories = categories;
    feature->category_count = count;
    for (size_t i = 0; i < count; i++) {
        categories[i].column = i;
        if (!read_text(PyTuple_GET_ITEM(values, (Py_ssize_t)i), &categories[i].text)) {
            PyErr_SetString(PyExc_ValueError, "a category must be a string of valid Unicode");
            return false;
        }
    }
    qsort(categories, count, sizeof *categories, compare_categories);
    return true;
}

static bool build_knots(potstill_feature *feature, PyObject *numbers)
{
    const size_t count = (size_t)PyTuple_GET_SIZE(numbers);
    if (!count) return true;
    double *knots = PyMem_RawCalloc(count, sizeof *knots);
    if (!knots) return PyErr_NoMemory(), false;
    feature->knots = knots;
    feature->knot_count = count;
    bool increasing = count > 1;
    for (size_t i = 0; i < count; i++) {
        knots[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(numbers, (Py_ssize_t)i));
        if (knots[i] == -1.0 && PyErr_Occurred()) return false;
        increasing = increasing && isfinite(knots[i]) && (!i || knots[i - 1] < knots[i]);
    }
    if (!increasing || knots[0] != feature->low || knots[count - 1] != feature->high)
        return PyErr_Format(PyExc_ValueError, "feature %s: its knots do not increase from low to high", feature->name),
               false;
    return true;
}

static bool build_parts(potstill_feature *feature, PyObject *names)
{
    static const char *const words[] = {"day", "week", "year", "hour", "weekday", "monthday", "month", NULL};
    static const size_t widths[] = {2, 2, 2, 24, 7, 31, 12};
    const size_t count = (size_t)PyTuple_GET_SIZE(names);
    size_t width = 0;
    potstill_part *parts = PyMem_RawCalloc(count + 1, sizeof *parts);
    if (!parts) return PyErr_NoMemory(), false;
    feature->parts = parts;
    feature->part_count = count;
    for (size_t i = 0; i < count; i++) {
        const char *word = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, (Py_ssize_t)i));
        const int part = word ? position_of(word, words) : -1;
        if (part < 0) return false;
        parts[i] = (potstill_part)part;
        width += widths[part];
    }
    if (feature->kind == POTSTILL_TIMESTAMP ? width == feature->size && width : !width) return true;
    return PyErr_Format(PyExc_ValueError, "feature %s: its parts do not fit its size", feature->name), false;
}

static bool check_scale(const potstill_feature *feature)
{
    if (isfinite(feature->origin) && isfinite(feature->span) && feature->span > 0) return true;
    PyErr_Format(PyExc_ValueError, "feature %s: its scale is not finite", feature->name);
    return false;
}

static size_t encoded_width(const potstill_feature *feature)
{
    if (feature->kind == POTSTILL_CATEGORICAL) return feature->category_count + 1;
    return (feature->size ? feature->size : 1) + (feature->missing == POTSTILL_FLAG);
}

static bool build_feature(potstill_feature *feature, PyObject *definition)
{
    static const char *const kinds[] = {"numeric", "boolean", "categorical", "hashed", "vector", "ngrams", "timestamp", NULL};
    static const char *const ways[] = {"refuse", "stand_in", "flag", NULL};
    const char *kind, *missing;
    PyObject *name, *values, *knots, *parts;
    Py_ssize_t size, ngrams;
    int log_scale, unit, offset, own;
    if (!PyTuple_Check(definition)) return PyErr_SetString(PyExc_TypeError, "a feature must be a tuple"), false;
    if (!PyArg_ParseTuple(definition, "UssdddddpO!npO!nO!ipd:feature", &name, &kind, &missing, &feature->stand_in,
                          &feature->low, &feature->high, &feature->origin, &feature->span, &log_scale, &PyTuple_Type,
                          &values, &size, &unit, &PyTuple_Type, &knots, &ngrams,
                          &PyTuple_Type, &parts, &offset, &own, &feature->per_second))
        return false;
    const int kind_number = position_of(kind, kinds), way = position_of(missing, ways);
    if (kind_number < 0 || way < 0) return false;
    feature->kind = (potstill_kind)kind_number;
    feature->missing = (potstill_missing)way;
    feature->name = PyUnicode_AsUTF8(name);
    feature->log = log_scale;
    feature->unit = unit;
    if (!feature->name) return false;
    if (feature->kind == POTSTILL_CATEGORICAL) return build_categories(feature, values);
    const bool sized = feature->kind == POTSTILL_HASHED || feature->kind == POTSTILL_VECTOR ||
                       feature->kind == POTSTILL_NGRAMS || feature->kind == POTSTILL_TIMESTAMP;
    if (sized ? size < 1 : size != 0)
        return PyErr_Format(PyExc_ValueError, "feature %s: its size is %zd", feature->name, size), false;
    feature->size = (size_t)size;
    if (feature->kind == POTSTILL_NGRAMS ? ngrams < 2 || ngrams > POTSTILL_LONGEST_NGRAM : ngrams != 0)
        return PyErr_Format(PyExc_ValueError, "feature %s: its n-grams have %zd characters", feature->name, ngrams),
               false;
    feature->ngrams = (size_t)ngrams;
    if (offset <= -DAY || offset >= DAY || !isfinite(feature->per_second) || feature->per_second < 0)
        return PyErr_Format(PyExc_ValueError, "feature %s: its clock is impossible", feature->name), false;
    feature->offset = offset;
    feature->own = own;
    return check_scale(feature) && build_knots(feature, knots) && build_parts(feature, parts);
}

static bool build_features(Kernel *self)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(self->definitions);
    self->features = PyMem_RawCalloc((size_t)count + 1, sizeof *self->features);
    self->offsets = PyMem_RawCalloc((size_t)count + 1, sizeof *self->offsets);
    if (!self->features || !self->offsets) return PyErr_NoMemory(), false;
    self->policy.features = self->features;
    for (Py_ssize_t i = 0; i < count; i++) {
        potstill_feature *feature = &self->features[i];
        self->policy.feature_count++; /* before building it, so that a feature that fails is freed as well */
        if (!build_feature(feature, PyTuple_GET_ITEM(self->definitions, i))) return false;
        feature->column = self->policy.width;
        self->policy.width += encoded_width(feature);
        self->offsets[i] = self->number_count;
        if (feature->kind == POTSTILL_VECTOR) self->number_count += feature->size;
    }
    return true;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Subclasses of str are refused: their hash and equality could run arbitrary code during a decision. */
static bool all_strings(PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, i)))
            return PyErr_SetString(PyExc_TypeError, "a name must be exactly a str"), false;
    }
    return true;
}

/* A dict from each name in a tuple to its position. */
static PyObject *numbered(PyObject *names)
{
    PyObject *positions = all_strings(names) ? PyDict_New() : NULL;
    for (Py_ssize_t i = 0; positions && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *position = PyLong_FromSsize_t(i);
        if (!position || PyDict_SetItem(positions, PyTuple_GET_ITEM(names, i), position) < 0) Py_CLEAR(positions);
        Py_XDECREF(position);
    }
    if (positions && PyDict_GET_SIZE(positions) != PyTuple_GET_SIZE(names)) {
        PyErr_SetString(PyExc_ValueError, "names must be distinct");
        Py_CLEAR(positions);
    }
    return positions;
}

/* The names of the features, interned, so that a literal key in a caller's code is the same object. */
static PyObject *interned_names(PyObject *definitions)
{
    PyObject *names = PyTuple_New(PyTuple_GET_SIZE(definitions));
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(definitions); i++) {
        PyObject *name = PyTuple_GET_ITEM(PyTuple_GET_ITEM(definitions, i), 0);
        Py_INCREF(name);
        PyUnicode_InternInPlace(&name);
        PyTuple_SET_ITEM(names, i, name);
    }
    return names;
}

static bool build_names(Kernel *self)
{
    self->names = interned_names(self->definitions);
    self->positions = self->names ? numbered(self->names) : NULL;
    self->places = self->positions ? numbered(self->actions) : NULL;
    return self->places != NULL;
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

static bool open_floats(PyObject *object, Py_buffer *view, int dimensions)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return false;
    if (view->ndim == dimensions && view->format && strcmp(view->format, "f") == 0) return true;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "a layer must be float32[inputs, outputs] and float32[outputs]");
    return false;
}

/* Copies the rows of an array into zero-padded memory. */
static void copy_rows(const Py_buffer *view, size_t rows, size_t columns, float *to, size_t stride)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * stride, (const char *)view->buf + i * columns * sizeof(float), columns * sizeof(float));
}

/* Copies a layer's weight and bias into one block of memory, aligned to a cache line. */
static bool copy_layer(potstill_layer *layer, const Py_buffer *weight, const Py_buffer *bias, void **owned)
{
    if (bias->shape[0] != weight->shape[1])
        return PyErr_SetString(PyExc_ValueError, "a layer's bias does not fit its weight"), false;
    layer->inputs = (size_t)weight->shape[0];
    layer->outputs = (size_t)weight->shape[1];
    layer->stride = (layer->outputs + PADDING - 1) / PADDING * PADDING;
    const size_t size = (layer->inputs + 1) * layer->stride * sizeof(float);
    *owned = PyMem_RawCalloc(1, size + CACHE_LINE);
    if (!*owned) return PyErr_NoMemory(), false;
    float *own = (float *)(((uintptr_t)*owned + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    layer->weight = own;
    layer->bias = own + layer->inputs * layer->stride;
    copy_rows(weight, layer->inputs, layer->outputs, own, layer->stride);
    copy_rows(bias, 1, layer->outputs, own + layer->inputs * layer->stride, layer->stride);
    return true;
}

static bool build_layer(potstill_layer *layer, PyObject *pair, void **owned)
{
    Py_buffer weight, bias;
    PyObject *matrix, *vector;
    if (!PyTuple_Check(pair)) return PyErr_SetString(PyExc_TypeError, "a layer must be a tuple"), false;
    if (!PyArg_ParseTuple(pair, "OO:layer", &matrix, &vector) || !open_floats(matrix, &weight, 2)) return false;
    if (!open_floats(vector, &bias, 1)) return PyBuffer_Release(&weight), false;
    const bool built = copy_layer(layer, &weight, &bias, owned);
    PyBuffer_Release(&bias);
    PyBuffer_Release(&weight);
    return built;
}

static bool layers_fit(const Kernel *self)
{
    size_t inputs = self->policy.width + (self->policy.masked ? self->policy.actions : 0);
    for (size_t i = 0; i < self->policy.layer_count; i++) {
        if (self->layers[i].inputs != inputs || !self->layers[i].outputs) return false;
        inputs = self->layers[i].outputs;
    }
    return self->policy.layer_count && inputs == self->policy.actions;
}

static bool build_layers(Kernel *self, PyObject *layers)
{
    const size_t count = (size_t)PyTuple_GET_SIZE(layers);
    self->layers = PyMem_RawCalloc(count + 1, sizeof *self->layers);
    self->weights = PyMem_RawCalloc(count + 1, sizeof *self->weights);
    if (!self->layers || !self->weights) return PyErr_NoMemory(), false;
    self->policy.layers = self->layers;
    self->policy.layer_count = count;
    for (size_t i = 0; i < count; i++) {
        if (!build_layer(&self->layers[i], PyTuple_GET_ITEM(layers, (Py_ssize_t)i), &self->weights[i])) return false;
    }
    if (!layers_fit(self)) return PyErr_SetString(PyExc_ValueError, "the layers do not fit the problem"), false;
    return true;
}

/* ---- the object ------------------------------------------------------------------------------------------------ */

/* Copies the edges of bins; None for a list of names. */
static bool build_edges(Kernel *self, PyObject *edges)
{
    Py_buffer view;
    self->policy.actions = (size_t)PyTuple_GET_SIZE(self->actions);
    if (edges == Py_None) return true;
    if (PyObject_GetBuffer(edges, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return false;
    const bool typed = view.ndim == 1 && view.format && strcmp(view.format, "d") == 0 && view.shape[0] > 1;
    if (typed) self->edges = PyMem_RawMalloc((size_t)view.len);
    if (self->edges) {
        memcpy(self->edges, view.buf, (size_t)view.len);
        self->policy.edges = self->edges;
        self->policy.actions = (size_t)view.shape[0] - 1;
    }
    PyBuffer_Release(&view);
    if (!typed) return PyErr_SetString(PyExc_ValueError, "edges must be float64[bins + 1]"), false;
    return self->edges ? true : (PyErr_NoMemory(), false);
}

static bool build_draw(Kernel *self, const char *activation, const Py_buffer *salt, double floor)
{
    static const char *const activations[] = {"tanh", "relu", NULL};
    const int number = position_of(activation, activations);
    if (number < 0) return false;
    if (salt->len != (Py_ssize_t)sizeof self->policy.salt)
        return PyErr_SetString(PyExc_ValueError, "salt must be 16 bytes"), false;
    memcpy(self->policy.salt, salt->buf, sizeof self->policy.salt);
    self->policy.activation = (potstill_activation)number;
    self->policy.floor = floor;
    return true;
}

PyObject *Kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"features", "layers",  "actions",  "activation", "salt",
                            "floor",    "version", "decision", "array",      "edges", "masked", NULL};
    PyObject *features, *layers, *actions, *version, *decision, *array, *edges;
    const char *activation;
    Py_buffer salt;
    double floor;
    int masked;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O!sy*dOOOOp:Kernel", names, &PyTuple_Type, &features,
                                     &PyTuple_Type, &layers, &PyTuple_Type, &actions, &activation, &salt, &floor,
                                     &version, &decision, &array, &edges, &masked))
        return NULL;
    Kernel *self = (Kernel *)PyType_GenericAlloc(type, 0);
    if (self) {
        self->definitions = Py_NewRef(features);
        self->actions = Py_NewRef(actions);
        self->version = Py_NewRef(version);
        self->decision = Py_NewRef(decision);
        self->array = Py_NewRef(array);
        self->policy.masked = masked;
        if (!build_edges(self, edges) || !build_draw(self, activation, &salt, floor) || !build_features(self) || !build_names(self) ||
            !build_layers(self, layers))
            Py_CLEAR(self);
    }
    PyBuffer_Release(&salt);
    return (PyObject *)self;
}

int Kernel_traverse(Kernel *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->definitions);
    Py_VISIT(self->names);
    Py_VISIT(self->positions);
    Py_VISIT(self->actions);
    Py_VISIT(self->places);
    Py_VISIT(self->version);
    Py_VISIT(self->decision);
    Py_VISIT(self->array);
    return 0;
}

void Kernel_dealloc(Kernel *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->definitions);
    Py_XDECREF(self->names);
    Py_XDECREF(self->positions);
    Py_XDECREF(self->actions);
    Py_XDECREF(self->places);
    Py_XDECREF(self->version);
    Py_XDECREF(self->decision);
    Py_XDECREF(self->array);
    for (size_t i = 0; i < self->policy.feature_count; i++) {
        PyMem_RawFree((void *)self->features[i].categories);
        PyMem_RawFree((void *)self->features[i].knots);
        PyMem_RawFree((void *)self->features[i].parts);
    }
    for (size_t i = 0; i < self->policy.layer_count; i++) PyMem_RawFree(self->weights[i]);
    PyMem_RawFree(self->features);
    PyMem_RawFree(self->offsets);
    PyMem_RawFree(self->layers);
    PyMem_RawFree(self->weights);
    PyMem_RawFree(self->edges);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}
