"""Tests of which kind of Node a share gets while DeviceClasses map its resource."""
