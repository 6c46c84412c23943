# SPDX-License-Identifier: Apache-2.0
"""What one or more runs show: the document behind reports, findings, comparisons and exports."""
