/* The limited API of CPython 3.11, so that one wheel serves all later versions (Py_LIMITED_API; see setup.py).
 *
 * A build from source uses the full API, whose macros make a decision about 15 % faster. Callers have checked types and
 * bounds, so that no function here fails where the macro it stands for would not. */
#ifndef POTSTILL_LIMITED_H
#define POTSTILL_LIMITED_H

#include <string.h>

#ifdef Py_LIMITED_API

#include <stdlib.h>

#undef PySequence_Fast_GET_SIZE
#undef PySequence_Fast_GET_ITEM
#define PySequence_Fast_GET_SIZE(object) (PyTuple_Check(object) ? PyTuple_Size(object) : PyList_Size(object))
#define PySequence_Fast_GET_ITEM(object, i) \
    (PyTuple_Check(object) ? PyTuple_GetItem(object, i) : PyList_GetItem(object, i))
#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_SET_ITEM PyTuple_SetItem
#define PyList_GET_SIZE PyList_Size
#define PyList_GET_ITEM PyList_GetItem
#define PyDict_GET_SIZE PyDict_Size
#define PyFloat_AS_DOUBLE PyFloat_AsDouble
#define PyUnicode_AsUTF8(object) PyUnicode_AsUTF8AndSize(object, NULL)
/* What is allocated here is freed here, so that any allocator fits. */
#define PyMem_RawMalloc malloc
#define PyMem_RawCalloc calloc
#define PyMem_RawFree free

/* Whether two strings are equal and valid Unicode. */
static inline bool same_text(PyObject *a, PyObject *b)
{
    Py_ssize_t length = 0, other = -1;
    const char *left = PyUnicode_AsUTF8AndSize(a, &length), *right = left ? PyUnicode_AsUTF8AndSize(b, &other) : NULL;
    if (!right) PyErr_Clear(); /* a lone surrogate */
    return right && length == other && memcmp(left, right, (size_t)length) == 0;
}

/* Calls a function with six arguments, fields[1] to fields[6]. */
static inline PyObject *call_six(PyObject *function, PyObject **fields)
{
    return PyObject_CallFunctionObjArgs(function, fields[1], fields[2], fields[3], fields[4], fields[5], fields[6], NULL);
}

#else

/* Whether two strings are equal and plain ASCII: all that is worth a fast check. */
static inline bool same_text(PyObject *a, PyObject *b)
{
    if (!PyUnicode_IS_COMPACT_ASCII(a) || !PyUnicode_IS_COMPACT_ASCII(b)) return false;
    const Py_ssize_t length = PyUnicode_GET_LENGTH(a);
    if (length != PyUnicode_GET_LENGTH(b)) return false;
    return memcmp(PyUnicode_1BYTE_DATA(a), PyUnicode_1BYTE_DATA(b), (size_t)length) == 0;
}

/* Calls a function with six arguments, fields[1] to fields[6]; fields[0] is scratch space. */
static inline PyObject *call_six(PyObject *function, PyObject **fields)
{
    return PyObject_Vectorcall(function, fields + 1, 6 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

#endif
#endif
