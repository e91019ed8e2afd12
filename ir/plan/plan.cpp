#include "ir/plan/plan.h"
