/* Declarations shared by the files of the Python extension. */
#ifndef POTSTILL_EXTENSION_H
#define POTSTILL_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel.h"

enum { CACHE_LINE = 64 };

/* A policy, ready to decide. Immutable, so threads share it without locks. */
typedef struct {
    PyObject_HEAD
    potstill_policy policy;
    potstill_feature *features; /* with their categories, owned */
    potstill_layer *layers;
    void **weights;        /* the memory of each layer */
    PyObject *definitions; /* the Python features; the kernel points into their strings */
    PyObject *names;       /* tuple of the features' names, interned */
    PyObject *positions;   /* dict: feature name to position */
    PyObject *actions;     /* tuple of the actions' names */
    PyObject *places;      /* dict: action name to position */
    PyObject *version;
    PyObject *decision; /* the type of what decide returns */
    PyObject *array;    /* the type of an encoded context */
} Kernel;

/* Memory of a call: on the stack, unless the policy is large. */
typedef struct {
    potstill_value *values;
    float *encoded;
    float *scratch;
    uint8_t *eligible;
    void *heap;
    char stack[8192];
} Workspace;

bool workspace_open(Workspace *space, const Kernel *kernel, size_t contexts); /* false if there is no memory */
void workspace_close(Workspace *space);

/* build.c: the life of a Kernel */
PyObject *Kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords);
int Kernel_traverse(Kernel *self, visitproc visit, void *arg);
void Kernel_dealloc(Kernel *self);

/* batch.c: methods over arrays */
PyObject *Kernel_probabilities(Kernel *self, PyObject *args);
PyObject *Kernel_decide_many(Kernel *self, PyObject *args);
PyObject *Kernel_encode_many(Kernel *self, PyObject *args);
PyObject *Kernel_encode_rows(Kernel *self, PyObject *args);
PyObject *Kernel_uniforms(Kernel *self, PyObject *args);
PyObject *digests(PyObject *module, PyObject *rows);

/* request.c: from Python's objects to the kernel's.
 *
 * These functions handle the common case: exact built-in types and finite numbers. For anything else they return false,
 * without an exception, and Python code handles the request from the start: it converts the values or raises an error,
 * with the same message in every runtime. Reading runs no Python code, so the objects cannot change or be freed
 * meanwhile. */
bool read_context(const Kernel *self, PyObject *context, Workspace *space);
bool read_named(const Kernel *self, PyObject *context, potstill_value *values, float *encoded);   /* a dict */
bool read_ordered(const Kernel *self, PyObject *context, potstill_value *values, float *encoded); /* a tuple */
bool read_text(PyObject *object, potstill_text *text);
bool read_eligible(const Kernel *self, PyObject *eligible, uint8_t *mask);
bool read_floor(const Kernel *self, PyObject *floor, double *number);

#endif
