/* Declarations shared by the files of the Python extension. */
#ifndef POTSTILL_EXTENSION_H
#define POTSTILL_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel.h"
#include "limited.h"

enum { CACHE_LINE = 64 };

/* A policy, ready to decide. Immutable after construction, so threads share it without locks. */
typedef struct {
    PyObject_HEAD
    potstill_policy policy;
    potstill_feature *features; /* with their categories and knots, owned */
    size_t *offsets;            /* where each feature's numbers begin in a workspace */
    size_t number_count;        /* numbers of all vectors */
    potstill_layer *layers;
    void **weights;        /* allocated memory of each layer */
    PyObject *definitions; /* the feature definitions; the kernel points into their strings */
    PyObject *names;       /* tuple of feature names, interned */
    PyObject *positions;   /* dict: feature name to position */
    PyObject *actions;     /* tuple of action names; empty for a policy over numbers */
    double *edges;         /* of a policy over numbers; else NULL */
    PyObject *places;      /* dict: action name to position */
    PyObject *version;
    PyObject *decision; /* type of a decision */
    PyObject *array;    /* type of an encoded context */
} Kernel;

/* Working memory of a call: on the stack, unless the policy is large. */
typedef struct {
    potstill_value *values;
    double *numbers; /* of vectors */
    float *encoded;
    float *scratch;
    uint8_t *eligible;
    void *heap;
    char stack[8192];
} Workspace;

bool workspace_open(Workspace *space, const Kernel *kernel, size_t contexts); /* false if out of memory */
void workspace_close(Workspace *space);

/* build.c: construction and deallocation of a Kernel */
PyObject *Kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords);
int Kernel_traverse(Kernel *self, visitproc visit, void *arg);
void Kernel_dealloc(Kernel *self);

/* batch.c: methods over arrays */
PyObject *Kernel_probabilities(Kernel *self, PyObject *args);
PyObject *Kernel_decide_many(Kernel *self, PyObject *args);
PyObject *Kernel_decide_numbers(Kernel *self, PyObject *args);
PyObject *Kernel_encode_many(Kernel *self, PyObject *args);
PyObject *Kernel_encode_rows(Kernel *self, PyObject *args);
PyObject *Kernel_uniforms(Kernel *self, PyObject *args);
PyObject *digests(PyObject *module, PyObject *rows);

/* request.c: conversion of Python objects to kernel values.
 *
 * The fast path covers nearly every decision: exact built-in types and finite numbers. For anything else these
 * functions return false without an exception, and Python code handles the request from the start: it converts what it
 * can and reports errors, with the same messages in every runtime. Reading runs no Python code, so no object can
 * change or be freed meanwhile. */
typedef bool (*ContextReader)(const Kernel *self, PyObject *context, Workspace *space);
bool read_context(const Kernel *self, PyObject *context, Workspace *space); /* a dict or an encoded array */
bool read_row(const Kernel *self, PyObject *values, Workspace *space);      /* a tuple */
bool read_named(const Kernel *self, PyObject *context, Workspace *space, float *encoded);   /* a dict */
bool read_ordered(const Kernel *self, PyObject *context, Workspace *space, float *encoded); /* a tuple */
bool read_text(PyObject *object, potstill_text *text);
bool read_eligible(const Kernel *self, PyObject *eligible, uint8_t *mask);
bool read_interval(PyObject *eligible, double interval[2]);
bool read_floor(const Kernel *self, PyObject *floor, double *number);

#endif
