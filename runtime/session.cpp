#include "runtime/session.h"
