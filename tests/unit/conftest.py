# SPDX-License-Identifier: Apache-2.0
"""What all unit tests have in common."""

from hypothesis import HealthCheck, settings

# An example promises no time: on a busy machine any of them may take longer than hypothesis expects by itself.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")
